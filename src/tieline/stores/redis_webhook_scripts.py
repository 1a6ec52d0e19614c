"""What has to happen with webhooks in Redis in one step, in Lua: bodies behind what redis_scripts.py has for all.

    h:WEBHOOK  ht:TASK   a webhook as a hash, and those of a task
    hw:OWNER  howners    who delivers what; those of a task that has ended and was delivered to its end are in none
    hd  ho               those that were given up, by when; those whose task was not there, by when they were made

`dead`, `owner` and `failing` of a hash are '' for none, `done` is '1' when its task has ended and was delivered to its
end.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DROP_TASKLESS", "DROP_WEBHOOKS_OF", "WEBHOOK_SCRIPTS"]

_FORGET: Final = """
local function forget(hook, task)
    local key = P .. 'h:' .. hook
    redis.call('SREM', P .. 'hw:' .. (redis.call('HGET', key, 'owner') or ''), hook)
    redis.call('SREM', P .. 'ht:' .. task, hook)
    redis.call('ZREM', P .. 'hd', hook)
    redis.call('ZREM', P .. 'ho', hook)
    redis.call('HINCRBY', N, 'webhooks', 0 - redis.call('DEL', key))
end
"""

DROP_WEBHOOKS_OF: Final = (
    _FORGET
    + """
local function drop_webhooks(task)
    for _, hook in ipairs(redis.call('SMEMBERS', P .. 'ht:' .. task)) do forget(hook, task) end
end
"""
)
"""A function that drops all of a task."""

_VALUE: Final = """
local function value(hook)
    return redis.call('HMGET', P .. 'h:' .. hook, 'scope', 'task', 'id', 'config', 'version', 'after', 'created',
        'owner', 'failing', 'failed', 'dead', 'reason')
end
"""

_OWN: Final = """
local function give(hook, from, to, done)
    if done ~= '1' then
        redis.call('SREM', P .. 'hw:' .. from, hook)
        redis.call('SADD', P .. 'hw:' .. to, hook)
        if to ~= '' then redis.call('SADD', P .. 'howners', to) end
    end
    redis.call('HSET', P .. 'h:' .. hook, 'owner', to)
end
local function is_done(task, after)
    local t = redis.call('HMGET', P .. 't:' .. task, 'state', 'version')
    return t[1] and ended(t[1]) and tonumber(after) >= tonumber(t[2])
end
"""

_SET: Final = """
if emptied(ARGV[2]) then return EMPTIED end
local hook, task, limit, owner = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local scope, task_id, id, config, version = ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local after, created, failing, failed, dead = ARGV[12], ARGV[13], ARGV[14], ARGV[15], ARGV[16]
local reason, again = ARGV[17], ARGV[18] == '1'
local key = P .. 'h:' .. hook
local there = redis.call('HGET', key, 'created')
if again and there == created then return 1 end
if redis.call('SCARD', P .. 'ht:' .. task) - (there and 1 or 0) >= limit then return 0 end
if there then forget(hook, task) end
local done = is_done(task, after) and '1' or ''
redis.call('HSET', key, 'scope', scope, 'task', task_id, 'id', id, 'config', config, 'version', version,
    'after', after, 'created', created, 'failing', failing, 'failed', failed, 'dead', dead, 'reason', reason,
    'done', done, 'tk', task)
redis.call('SADD', P .. 'ht:' .. task, hook)
redis.call('HINCRBY', N, 'webhooks', 1)
if dead ~= '' then
    redis.call('ZADD', P .. 'hd', dead, hook)
    redis.call('HSET', key, 'owner', '')
else
    give(hook, '', owner, done)
end
if redis.call('EXISTS', P .. 't:' .. task) == 0 then redis.call('ZADD', P .. 'ho', created, hook) end
return 1
"""

_OF: Final = """
local out = {}
for _, hook in ipairs(redis.call('SMEMBERS', P .. 'ht:' .. ARGV[2])) do out[#out+1] = value(hook) end
return out
"""

_DROP: Final = """
local hook, task, again = ARGV[2], ARGV[3], ARGV[4] == '1'
if redis.call('EXISTS', P .. 'h:' .. hook) == 0 then return again and 1 or 0 end
forget(hook, task)
return 1
"""

_CLAIM: Final = """
local task, me = ARGV[2], ARGV[3]
local out = {}
for _, hook in ipairs(redis.call('SMEMBERS', P .. 'ht:' .. task)) do
    local h = redis.call('HMGET', P .. 'h:' .. hook, 'dead', 'owner', 'done')
    if h[1] == '' and (h[2] == '' or h[2] == me or redis.call('HEXISTS', P .. 'r', h[2]) == 0) then
        if h[2] ~= me then give(hook, h[2], me, h[3]) end
        out[#out+1] = value(hook)
    end
end
return out
"""

# Whether an owner has become this one is known, when the answer was lost, by the mark.
_TAKE: Final = """
local me, prefix, limit, mark, again = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6] == '1'
local out = {}
if again then
    for _, hook in ipairs(redis.call('SMEMBERS', P .. 'hw:' .. me)) do
        if redis.call('HGET', P .. 'h:' .. hook, 'taken') == mark then out[#out+1] = value(hook) end
    end
    if #out > 0 then return out end
end
local owners = redis.call('SMEMBERS', P .. 'howners')
owners[#owners+1] = ''
for _, owner in ipairs(owners) do
    if owner == '' or (owner ~= me and redis.call('HEXISTS', P .. 'r', owner) == 0) then
        local theirs, cursor = P .. 'hw:' .. owner, '0'
        repeat
            local found = redis.call('SSCAN', theirs, cursor, 'COUNT', 200)
            cursor = found[1]
            for _, hook in ipairs(found[2]) do
                local h = redis.call('HMGET', P .. 'h:' .. hook, 'scope', 'tk', 'after', 'owner')
                if h[4] ~= owner then
                    redis.call('SREM', theirs, hook)
                elseif string.sub(h[1], 1, #prefix) == prefix then
                    local version = redis.call('HGET', P .. 't:' .. h[2], 'version')
                    if version and tonumber(version) > tonumber(h[3]) then
                        if #out >= limit then return out end
                        give(hook, owner, me, '')
                        redis.call('HSET', P .. 'h:' .. hook, 'taken', mark)
                        out[#out+1] = value(hook)
                    end
                end
            end
        until cursor == '0'
        if redis.call('EXISTS', theirs) == 0 then redis.call('SREM', P .. 'howners', owner) end
    end
end
return out
"""

# How far some have come, and which of them are let go of.
_NOTE: Final = """
local me = ARGV[2]
for i = 3, #ARGV, 5 do
    local hook, created, after, failing, let_go = ARGV[i], ARGV[i+1], ARGV[i+2], ARGV[i+3], ARGV[i+4] == '1'
    local key = P .. 'h:' .. hook
    local h = redis.call('HMGET', key, 'created', 'after', 'owner', 'dead', 'done', 'tk', 'failing')
    if h[1] == created then
        if tonumber(after) > tonumber(h[2]) then
            redis.call('HSET', key, 'after', after, 'failing', failing)
            h[2] = after
        elseif after == h[2] and h[7] == '' and failing ~= '' then
            redis.call('HSET', key, 'failing', failing)
        end
        if h[4] == '' and h[5] ~= '1' and is_done(h[6], h[2]) then
            redis.call('HSET', key, 'done', '1')
            redis.call('SREM', P .. 'hw:' .. h[3], hook)
            h[5] = '1'
        end
        if let_go and h[3] == me then give(hook, me, '', h[5]) end
    end
end
return 1
"""

_GIVE_UP: Final = """
local hook, created, me, after, failed, at, reason = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local key = P .. 'h:' .. hook
local h = redis.call('HMGET', key, 'created', 'after', 'owner', 'dead')
if h[1] ~= created or h[4] ~= '' or (h[3] ~= '' and h[3] ~= me) then return 0 end
if tonumber(after) > tonumber(h[2]) then redis.call('HSET', key, 'after', after, 'failing', '') end
redis.call('HSET', key, 'failed', failed, 'dead', at, 'reason', reason, 'owner', '')
redis.call('SREM', P .. 'hw:' .. h[3], hook)
redis.call('ZADD', P .. 'hd', at, hook)
return 1
"""

_DEAD: Final = """
local prefix, limit = ARGV[2], tonumber(ARGV[3])
local out, first = {}, 0
while #out < limit do
    local found = redis.call('ZREVRANGE', P .. 'hd', first, first + 199)
    for _, hook in ipairs(found) do
        local scope = redis.call('HGET', P .. 'h:' .. hook, 'scope')
        if #out < limit and scope and string.sub(scope, 1, #prefix) == prefix then out[#out+1] = value(hook) end
    end
    if #found < 200 then break end
    first = first + 200
end
return out
"""

_REVIVE: Final = """
local hook, again = ARGV[2], ARGV[3] == '1'
local h = redis.call('HMGET', P .. 'h:' .. hook, 'dead', 'done')
if not h[1] then return 0 end
if h[1] == '' then return again and 1 or 0 end
redis.call('HSET', P .. 'h:' .. hook, 'dead', '', 'failing', '', 'failed', 0, 'reason', '')
redis.call('ZREM', P .. 'hd', hook)
give(hook, '', '', h[2])
return 1
"""

# Those whose task was not made give 1, those whose task is there now give 0 and are looked at no more.
DROP_TASKLESS: Final = (
    _FORGET
    + """
while true do
    local head = redis.call('ZRANGE', P .. 'ho', 0, 0, 'WITHSCORES')
    if not goes(head[2]) then return answer() end
    local task = redis.call('HGET', P .. 'h:' .. head[1], 'tk')
    local there = not task or redis.call('EXISTS', P .. 't:' .. task) == 1
    if there then redis.call('ZREM', P .. 'ho', head[1]) else forget(head[1], task) end
    out[#out+1] = there and 0 or 1
    gone(0)
end
"""
)
"""A step of a prune: it goes behind what redis_scripts.py has for all of them."""

WEBHOOK_SCRIPTS: Final = {
    "set_webhook": _FORGET + _OWN + _SET,
    "webhooks": _VALUE + _OF,
    "drop_webhook": _FORGET + _DROP,
    "claim_webhooks": _VALUE + _OWN + _CLAIM,
    "take_webhooks": _VALUE + _OWN + _TAKE,
    "note": _OWN + _NOTE,
    "give_up_webhook": _GIVE_UP,
    "dead_webhooks": _VALUE + _DEAD,
    "revive_webhook": _OWN + _REVIVE,
}
