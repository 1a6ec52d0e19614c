"""What has to happen in Redis in one step, in Lua, and the keys that it is about.

All keys begin with `{prefix}:`, so that they live in one slot of a cluster. Digests stand for callers' texts.

    meta                version of this layout, and an epoch: a mark that is gone when Redis was emptied
    t:TASK  l:TASK      a task as a hash, and its log as a stream with an entry `<last>-0` for each append
    s:SCOPE             the tasks of a scope by `updated`: ids, as lists are ordered by them; c:CONTEXT, x:SCOPE+STATE
    u  e:STATE  el      all tasks, those that have ended so, and those of them that have a log, by `updated`
    w:OWNER  owners     who is at work on what
    m:MESSAGE  ms  mr   the outcome of a message, all of them by when they came, and the bytes of those with a reply
    r  i:REPLICA        how often each replica has said that it is alive, and its letters
    h:WEBHOOK  ht: hw:  webhooks: see redis_webhook_scripts.py
    d:MARK              what a step of a prune has dropped, for a minute, should its answer be lost
    n                   counts: tasks:STATE, bytes, bytes:STATE, logs, events, outcomes, newest, webhooks
"""

from __future__ import annotations

from typing import Final

from tieline.stores.redis_webhook_scripts import DROP_TASKLESS, DROP_WEBHOOKS_OF, WEBHOOK_SCRIPTS

__all__ = ["FIELDS", "SCRIPTS"]

FIELDS: Final = (
    "scope",
    "id",
    "context",
    "state",
    "updated",
    "version",
    "snapshot",
    "snapshot_version",
    "owner",
)
"""The fields of a task's hash that make its record, in order."""

_COMMON: Final = """
local P = ARGV[1]
local N = P .. 'n'
local EMPTIED = {err = 'EMPTIED the mark of the store is gone'}
local function emptied(epoch)
    return redis.call('HGET', P .. 'meta', 'epoch') ~= epoch
end
local function ended(state)
    return state == 'TASK_STATE_COMPLETED' or state == 'TASK_STATE_FAILED'
        or state == 'TASK_STATE_CANCELED' or state == 'TASK_STATE_REJECTED'
end
local function at_work(state)
    return state == 'TASK_STATE_SUBMITTED' or state == 'TASK_STATE_WORKING'
end
local function record(task)
    return redis.call('HMGET', P .. 't:' .. task, 'scope', 'id', 'context', 'state', 'updated', 'version',
        'snapshot', 'snapshot_version', 'owner')
end
local function own(task, state, from, to)
    if at_work(state) and from ~= to then
        redis.call('SREM', P .. 'w:' .. from, task)
        redis.call('SADD', P .. 'w:' .. to, task)
        redis.call('SADD', P .. 'owners', to)
    end
    redis.call('HSET', P .. 't:' .. task, 'owner', to)
end
local function drop(task)
    local key = P .. 't:' .. task
    local t = redis.call('HMGET', key, 'sk', 'ck', 'id', 'state', 'size', 'log', 'events')
    if not t[1] then  -- it was evicted, or deleted by hand: what points to it goes, too
        redis.call('ZREM', P .. 'u', task)
        redis.call('ZREM', P .. 'el', task)
        for _, state in ipairs({'COMPLETED', 'FAILED', 'CANCELED', 'REJECTED'}) do
            redis.call('ZREM', P .. 'e:TASK_STATE_' .. state, task)
        end
        return nil
    end
    local log = tonumber(t[6])
    local size = tonumber(t[5]) + log
    redis.call('DEL', key, P .. 'l:' .. task)
    redis.call('ZREM', P .. 's:' .. t[1], t[3])
    redis.call('ZREM', P .. 'c:' .. t[2], t[3])
    redis.call('ZREM', P .. 'x:' .. t[1] .. t[4], t[3])
    redis.call('ZREM', P .. 'u', task)
    redis.call('ZREM', P .. 'e:' .. t[4], task)
    redis.call('ZREM', P .. 'el', task)
    redis.call('HINCRBY', N, 'tasks:' .. t[4], -1)
    redis.call('HINCRBY', N, 'bytes', -size)
    redis.call('HINCRBY', N, 'bytes:' .. t[4], -size)
    redis.call('HINCRBY', N, 'logs', 0 - log)  -- the log may be gone before: -0 would be no integer
    redis.call('HINCRBY', N, 'events', 0 - tonumber(t[7]))
    return size
end
local function finish(task, state, updated, size, log)
    redis.call('ZADD', P .. 'e:' .. state, updated, task)
    if log > 0 then redis.call('ZADD', P .. 'el', updated, task) end
    redis.call('HINCRBY', N, 'bytes:' .. state, size + log)
    redis.call('HINCRBY', N, 'logs', log)
end
"""

# Each append gives 1 when it is done, or was done by this same group before, 0 when it conflicts, and -1 when it would
# go on with a task that is not there.
_APPEND: Final = """
if emptied(ARGV[2]) then return EMPTIED end
local me, mark, count = ARGV[3], ARGV[4], tonumber(ARGV[5])
local out = {}
local newest = tonumber(redis.call('HGET', N, 'newest') or '0')
redis.call('SADD', P .. 'owners', me)
for i = 0, count - 1 do
    local o = 5 + i * 13
    local task, sk, ck, scope, id, context = ARGV[o+1], ARGV[o+2], ARGV[o+3], ARGV[o+4], ARGV[o+5], ARGV[o+6]
    local state, updated, after, version = ARGV[o+7], ARGV[o+8], ARGV[o+9], ARGV[o+10]
    local has_snapshot, snapshot, body = ARGV[o+11] == '1', ARGV[o+12], ARGV[o+13]
    local key = P .. 't:' .. task
    local t = redis.call('HMGET', key, 'version', 'owner', 'mark', 'state', 'updated', 'size', 'log')
    local fits
    if t[3] == mark and t[1] == version then
        out[i+1] = 1
    else
        if after == '0' then fits = not t[1] else fits = t[1] == after and t[2] == me end
        out[i+1] = fits and 1 or (after ~= '0' and not t[1]) and -1 or 0
    end
    if fits then
        local old_state, old_updated = t[4], t[5]
        local size, log = tonumber(t[6] or '0'), tonumber(t[7] or '0')
        local grown = #body
        if not t[1] then
            redis.call('HSET', key, 'scope', scope, 'id', id, 'context', context, 'sk', sk, 'ck', ck, 'events', 0)
        elseif old_state ~= state then
            redis.call('ZREM', P .. 'x:' .. sk .. old_state, id)
            redis.call('HINCRBY', N, 'tasks:' .. old_state, -1)
        end
        redis.call('HSET', key, 'state', state, 'updated', updated, 'version', version, 'mark', mark)
        if has_snapshot then
            redis.call('HSET', key, 'snapshot', snapshot, 'snapshot_version', version, 'size', #snapshot)
            grown = grown + #snapshot - size
            size = #snapshot
        end
        if old_state ~= state then redis.call('HINCRBY', N, 'tasks:' .. state, 1) end
        if old_state ~= state or old_updated ~= updated then
            redis.call('ZADD', P .. 's:' .. sk, updated, id)
            redis.call('ZADD', P .. 'c:' .. ck, updated, id)
            redis.call('ZADD', P .. 'x:' .. sk .. state, updated, id)
            redis.call('ZADD', P .. 'u', updated, task)
            if tonumber(updated) > newest then newest = tonumber(updated) end
        end
        if version ~= after then
            redis.call('XADD', P .. 'l:' .. task, version .. '-0', 'f', after + 1, 'b', body)
            redis.call('HINCRBY', key, 'events', version - after)
            redis.call('HINCRBY', N, 'events', version - after)
        end
        log = log + #body
        redis.call('HSET', key, 'log', log)
        redis.call('HINCRBY', N, 'bytes', grown)
        if ended(state) then
            if t[2] then redis.call('SREM', P .. 'w:' .. t[2], task) end
            redis.call('HSET', key, 'owner', '')
            finish(task, state, updated, size, log)
        else
            redis.call('HSET', key, 'owner', me)
            if at_work(state) then
                redis.call('SADD', P .. 'w:' .. me, task)
            elseif t[1] then
                redis.call('SREM', P .. 'w:' .. me, task)
            end
        end
    end
end
redis.call('HSET', N, 'newest', string.format('%.0f', newest))
return out
"""

# Each message gives {} when it is new, else what was noted first.
_HEAR: Final = """
if emptied(ARGV[2]) then return EMPTIED end
local me, ttl, count = ARGV[3], ARGV[4], tonumber(ARGV[5])
local out = {}
for i = 0, count - 1 do
    local message, task, at = ARGV[6+i*3], ARGV[7+i*3], ARGV[8+i*3]
    local key = P .. 'm:' .. message
    if redis.call('EXISTS', key) == 1 then
        out[i+1] = redis.call('HMGET', key, 'task', 'reply', 'replica')
    else
        redis.call('HSET', key, 'task', task, 'replica', me)
        if ttl ~= '' then redis.call('EXPIRE', key, ttl) end
        redis.call('ZADD', P .. 'ms', at, message)
        redis.call('HINCRBY', N, 'outcomes', 150)
        out[i+1] = {}
    end
end
return out
"""

_REPLIED: Final = """
if emptied(ARGV[2]) then return EMPTIED end
for i = 3, #ARGV, 2 do
    local key = P .. 'm:' .. ARGV[i]
    if redis.call('EXISTS', key) == 1 then
        if redis.call('HSETNX', key, 'reply', ARGV[i+1]) == 1 then
            redis.call('HSET', P .. 'mr', ARGV[i], #ARGV[i+1])
            redis.call('HINCRBY', N, 'outcomes', #ARGV[i+1])
        end
    end
end
return 1
"""

_RELEASE: Final = """
for i = 3, #ARGV do
    local t = redis.call('HMGET', P .. 't:' .. ARGV[i], 'owner', 'state')
    if t[1] == ARGV[2] and not ended(t[2]) then own(ARGV[i], t[2], ARGV[2], '') end
end
return 1
"""

# Whether an owner has become this one is known, when the answer was lost, by the mark.
_CLAIM: Final = """
local task, me, owner, mark, again = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6] == '1'
local t = redis.call('HMGET', P .. 't:' .. task, 'owner', 'state', 'taken')
if again and t[1] == me and t[3] == mark then return record(task) end
if t[1] ~= owner or ended(t[2]) then return {} end
own(task, t[2], owner, me)
redis.call('HSET', P .. 't:' .. task, 'taken', mark)
return record(task)
"""

_CLAIM_MESSAGE: Final = """
local key, me, replica, mark, again = P .. 'm:' .. ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6] == '1'
local m = redis.call('HMGET', key, 'replica', 'taken')
if again and m[1] == me and m[2] == mark then return 1 end
if m[1] ~= replica then return 0 end
redis.call('HSET', key, 'replica', me, 'taken', mark)
return 1
"""

_TAKE: Final = """
local me, prefix, mark, again = ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'
local out = {}
if again then
    for _, task in ipairs(redis.call('SMEMBERS', P .. 'w:' .. me)) do
        if redis.call('HGET', P .. 't:' .. task, 'taken') == mark then out[#out+1] = record(task) end
    end
    if #out > 0 then return out end
end
local owners = redis.call('SMEMBERS', P .. 'owners')
owners[#owners+1] = ''
for _, owner in ipairs(owners) do
    if owner == '' or redis.call('HEXISTS', P .. 'r', owner) == 0 then
        local theirs, cursor = P .. 'w:' .. owner, '0'
        repeat
            local found = redis.call('SSCAN', theirs, cursor, 'COUNT', 200)
            cursor = found[1]
            for _, task in ipairs(found[2]) do
                local t = redis.call('HMGET', P .. 't:' .. task, 'scope', 'state', 'owner')
                if t[3] ~= owner then
                    redis.call('SREM', theirs, task)
                elseif string.sub(t[1], 1, #prefix) == prefix then
                    own(task, t[2], owner, me)
                    redis.call('HSET', P .. 't:' .. task, 'taken', mark)
                    out[#out+1] = record(task)
                    if #out >= 200 then return out end
                end
            end
        until cursor == '0'
        if redis.call('EXISTS', theirs) == 0 then redis.call('SREM', P .. 'owners', owner) end
    end
end
return out
"""

# Makes the store ready where it is empty: also when it was emptied in use.
_BEAT: Final = """
local me = ARGV[2]
if redis.call('EXISTS', P .. 'meta') == 0 then redis.call('HSET', P .. 'meta', 'version', ARGV[3], 'epoch', ARGV[4]) end
redis.call('HINCRBY', P .. 'r', me, 1)
return {redis.call('HGET', P .. 'meta', 'epoch'), redis.call('HGETALL', P .. 'r')}
"""

_BURY: Final = """
local beats = redis.call('HGET', P .. 'r', ARGV[2])
if not beats and ARGV[4] == '1' then return 1 end
if beats ~= ARGV[3] then return 0 end
redis.call('HDEL', P .. 'r', ARGV[2])
redis.call('DEL', P .. 'i:' .. ARGV[2])
return 1
"""

# What is dropped, the oldest first: what is from before ARGV[3], or until the count ARGV[4] is no more than ARGV[5] (''
# is no such limit), and ARGV[6] at most. A step that is asked for again by its mark ARGV[2] answers what it did before.
_DROPPING: Final = """
local kept = redis.call('GET', P .. 'd:' .. ARGV[2])
if kept then return cmsgpack.unpack(kept) end
local before, left, over = tonumber(ARGV[3]), tonumber(ARGV[6]), nil
if ARGV[4] ~= '' then over = tonumber(redis.call('HGET', N, ARGV[4]) or '0') - tonumber(ARGV[5]) end
local out = {}
local function goes(at)
    return left > 0 and at and not (before and tonumber(at) >= before) and not (over and over <= 0)
end
local function gone(size)
    left = left - 1
    if over then over = over - size end
end
local function answer()
    if #out > 0 then redis.call('SET', P .. 'd:' .. ARGV[2], cmsgpack.pack(out), 'EX', 60) end
    return out
end
"""

# Ended tasks of the states from ARGV[7] on.
_DROP: Final = """
while true do
    local first, first_state, first_at
    for i = 7, #ARGV do
        local head = redis.call('ZRANGE', P .. 'e:' .. ARGV[i], 0, 0, 'WITHSCORES')
        if head[1] and (not first_at or tonumber(head[2]) < first_at) then
            first, first_state, first_at = head[1], ARGV[i], tonumber(head[2])
        end
    end
    if not goes(first_at) then return answer() end
    local size = drop(first)
    drop_webhooks(first)
    if size then
        out[#out+1] = {first_state, size}
        gone(size)
    end
end
"""

_DROP_LOGS: Final = """
while true do
    local head = redis.call('ZRANGE', P .. 'el', 0, 0, 'WITHSCORES')
    if not goes(head[2]) then return answer() end
    local key = P .. 't:' .. head[1]
    local t = redis.call('HMGET', key, 'log', 'events', 'state')
    redis.call('ZREM', P .. 'el', head[1])
    redis.call('DEL', P .. 'l:' .. head[1])
    if t[1] then
        local log = tonumber(t[1])
        redis.call('HSET', key, 'log', 0, 'events', 0)
        redis.call('HINCRBY', N, 'logs', 0 - log)
        redis.call('HINCRBY', N, 'bytes', 0 - log)
        redis.call('HINCRBY', N, 'bytes:' .. t[3], 0 - log)
        redis.call('HINCRBY', N, 'events', 0 - tonumber(t[2]))
        out[#out+1] = log
        gone(log)
    end
end
"""

_DROP_MESSAGES: Final = """
while true do
    local head = redis.call('ZRANGE', P .. 'ms', 0, 0, 'WITHSCORES')
    if not goes(head[2]) then return answer() end
    local size = 150 + tonumber(redis.call('HGET', P .. 'mr', head[1]) or '0')
    redis.call('DEL', P .. 'm:' .. head[1])
    redis.call('ZREM', P .. 'ms', head[1])
    redis.call('HDEL', P .. 'mr', head[1])
    redis.call('HINCRBY', N, 'outcomes', -size)
    out[#out+1] = size
    gone(size)
end
"""

# The tasks of the set ARGV[2], and of ARGV[3] too if there is one, not older than ARGV[4]: how many there are, and the
# ids and times of the first that stand behind the time ARGV[5] and the id ARGV[6]. '' is no such limit.
_LIST: Final = """
local one, other, both = P .. ARGV[2], P .. ARGV[3], ARGV[3] ~= ''
local since, at, id, room = tonumber(ARGV[4]) or -math.huge, tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local function below(a, b)  -- by their bytes: Lua's own order is that of a language
    for i = 1, math.min(#a, #b) do
        local x, y = string.byte(a, i), string.byte(b, i)
        if x ~= y then return x < y end
    end
    return #a < #b
end
if both and redis.call('ZCARD', other) < redis.call('ZCARD', one) then one, other = other, one end
local total, out, first = 0, {}, 0
if not both then
    total = redis.call('ZCOUNT', one, ARGV[4] == '' and '-inf' or ARGV[4], '+inf')
    if at then first = redis.call('ZCOUNT', one, '(' .. ARGV[5], '+inf') end
end
while both or #out < room * 2 do
    local found = redis.call('ZREVRANGE', one, first, first + 199, 'WITHSCORES')
    for i = 1, #found, 2 do
        local member, score = found[i], tonumber(found[i+1])
        if score < since then return {total, out} end
        if not both or redis.call('ZSCORE', other, member) then
            if both then total = total + 1 end
            if #out < room * 2 and (not at or score < at or (score == at and below(member, id))) then
                out[#out+1] = member
                out[#out+1] = found[i+1]
            end
        end
    end
    if #found < 400 then break end
    first = first + 200
end
return {total, out}
"""

# A reader that has left too much unread is told so, instead.
_POST: Final = """
local key, most, kept = P .. 'i:' .. ARGV[2], tonumber(ARGV[3]), ARGV[4]
if redis.call('XLEN', key) + #ARGV - 4 > most then
    redis.call('XTRIM', key, 'MAXLEN', 0)
    redis.call('XADD', key, '*', 'g', '')
end
for i = 5, #ARGV do redis.call('XADD', key, '*', 'b', ARGV[i]) end
redis.call('EXPIRE', key, kept)
return 1
"""

_PUT: Final = """
if emptied(ARGV[2]) then return EMPTIED end
local mark, again = ARGV[3], ARGV[4] == '1'
local task, sk, ck, scope, id, context = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local state, updated, version, snapshot, snapshot_version = ARGV[11], ARGV[12], ARGV[13], ARGV[14], ARGV[15]
local first, body = ARGV[16], ARGV[17]
local key = P .. 't:' .. task
if redis.call('EXISTS', key) == 1 then
    return (again and redis.call('HGET', key, 'mark') == mark) and 1 or 0
end
local log, events = 0, 0
if first ~= '' then
    log, events = #body, version - first + 1
    redis.call('XADD', P .. 'l:' .. task, version .. '-0', 'f', first, 'b', body)
end
redis.call('HSET', key, 'scope', scope, 'id', id, 'context', context, 'sk', sk, 'ck', ck, 'events', events,
    'state', state, 'updated', updated, 'version', version, 'snapshot', snapshot,
    'snapshot_version', snapshot_version, 'size', #snapshot, 'log', log, 'owner', '', 'mark', mark)
redis.call('ZADD', P .. 's:' .. sk, updated, id)
redis.call('ZADD', P .. 'c:' .. ck, updated, id)
redis.call('ZADD', P .. 'x:' .. sk .. state, updated, id)
redis.call('ZADD', P .. 'u', updated, task)
redis.call('HINCRBY', N, 'tasks:' .. state, 1)
redis.call('HINCRBY', N, 'bytes', #snapshot + log)
redis.call('HINCRBY', N, 'events', events)
local newest = tonumber(redis.call('HGET', N, 'newest') or '0')
if tonumber(updated) > newest then redis.call('HSET', N, 'newest', updated) end
if ended(state) then
    finish(task, state, updated, #snapshot, log)
elseif at_work(state) then
    redis.call('SADD', P .. 'w:', task)
end
return 1
"""

_ALSO_WHEN_FULL: Final = "#!lua flags=allow-oom\n"
# A replica does not die because there is no room for tasks, and what was delivered is not delivered again.
_WHEN_FULL: Final = ("beat", "release", "note", "give_up_webhook", "drop_webhook")

SCRIPTS: Final = {
    name: (_ALSO_WHEN_FULL if name in _WHEN_FULL else "") + _COMMON + body
    for name, body in {
        "append": _APPEND,
        "hear": _HEAR,
        "replied": _REPLIED,
        "release": _RELEASE,
        "claim": _CLAIM,
        "claim_message": _CLAIM_MESSAGE,
        "take": _TAKE,
        "beat": _BEAT,
        "bury": _BURY,
        "list": _LIST,
        "post": _POST,
        "drop": _DROPPING + DROP_WEBHOOKS_OF + _DROP,
        "drop_logs": _DROPPING + _DROP_LOGS,
        "drop_messages": _DROPPING + _DROP_MESSAGES,
        "drop_taskless": _DROPPING + DROP_TASKLESS,
        "put": _PUT,
        **WEBHOOK_SCRIPTS,
    }.items()
}
