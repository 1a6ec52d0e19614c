"""Calling agents. What is public stands in `tieline` itself: connect, Peer, Reply, Timeouts, Recovery, CardCache.

From the top down; a module imports only from those below it.

    peer.py                           connect, and Peer: what a user calls
    calls.py                          its operations, over whichever way leads to the agent; waiting for an answer
    following.py  seen.py             a stream that is taken up again when it breaks; what was given already
    opening.py                        from a reference to the ways to an agent
    discovery.py  route.py            finding, reading and keeping cards; choosing among their interfaces
    jsonrpc.py  rest.py  direct.py    the transports
    identity.py  fitting.py           who the caller is to one agent; which credentials its card asks for
    tokens.py                         one OAuth token at a time, and where tokens may come from
    browser_flow.py  device_flow.py   users who sign in
    oauth.py                          authorization servers
    saved.py  vault.py                credentials that outlive a process: a file, the system's keyring
    http.py  wirelog.py               HTTP with limits, its errors as ours; what goes over the wire, for the log
    credentials.py  origin.py         what a caller shows, as values; where it may go
    transport.py  content.py          what a transport is; what is said and answered, as messages
"""
