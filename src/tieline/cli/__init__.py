"""The `tieline` command.

main.py  root.py                                     the entry, and the commands
send.py  task.py  download.py  card.py               commands that talk to an agent
serve.py  config.py  completion.py                   commands that do not
store.py  carrying.py                                commands for stores of tasks
opened.py  task_lines.py                             a store by its URL; tasks as lines of JSON
session.py  waiting.py                               one run: settings, connection, how it ends; waiting for a task
settings.py  options.py                              where a value comes from; settings as options of click
parts.py  credentials.py                             what goes out: parts of a message, tokens and keys
amounts.py  files.py  progress.py                    durations and sizes; files that are written; a bar
output.py  text.py  notes.py  errors.py              what comes out: stdout, stderr, and failures as codes
"""
