-- Count down to zero once, and wake the waiters.
-- KEYS[1] the latch: 'count'   KEYS[2] waiters: "channel request"
-- KEYS[3] requests that opened it or counted down: request -> "reply second"
-- ARGV[1] what to do: open, down, delete, look, waiters or leave
--   open: [2] request   [3] count   [4] life in milliseconds   returns 1, or 0 if it is open already
--   down: [2] request                                          returns what is left
--   delete: [2] request                                        returns 1, or 0 if it is not open
--   look: [2] "channel request", or '' not to wait             returns what is left
--   waiters: returns who waits
--   leave: [2] "channel request"                               returns 0
-- A latch that was never opened, or has reached zero, does not exist: what is left is 0.
-- A second copy of a request gets the same reply and changes nothing: for as long as that latch is open, and for
-- REMEMBER at least, also if it is opened again meanwhile.

local REMEMBER = 10  -- seconds; as in places.lua

local what = ARGV[1]
if what == 'leave' then
    redis.call('SREM', KEYS[2], ARGV[2])
    return 0
end

if what == 'waiters' then return redis.call('SMEMBERS', KEYS[2]) end

local left = tonumber(redis.call('HGET', KEYS[1], 'count') or 0)
if what == 'look' then
    if left > 0 and ARGV[2] ~= '' then
        redis.call('SADD', KEYS[2], ARGV[2])
        redis.call('PEXPIRE', KEYS[2], redis.call('PTTL', KEYS[1]))
    end
    return left
end

local request = ARGV[2]
local replied = redis.call('HGET', KEYS[3], request)
if replied then return tonumber(string.match(replied, '^%d+')) end
local second = redis.call('TIME')[1]

local function remember(answer)
    redis.call('HSET', KEYS[3], request, string.format('%.0f %s', answer, second))
    redis.call('PEXPIRE', KEYS[3], math.max(redis.call('PTTL', KEYS[1]), 0) + REMEMBER * 1000)
    return answer
end

if what == 'open' then
    if left > 0 then return 0 end
    local fields = redis.call('HGETALL', KEYS[3])  -- of the latches of this name before
    for index = 1, #fields, 2 do
        if string.match(fields[index + 1], '%d+$') + REMEMBER < tonumber(second) then
            redis.call('HDEL', KEYS[3], fields[index])
        end
    end
    redis.call('HSET', KEYS[1], 'count', ARGV[3])
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
    return remember(1)
end

if left == 0 then return 0 end
left = what == 'delete' and 0 or redis.call('HINCRBY', KEYS[1], 'count', -1)
if left == 0 then
    for _, waiter in ipairs(redis.call('SMEMBERS', KEYS[2])) do
        local channel, waiting = string.match(waiter, '^(%S+) (%S+)$')
        redis.call('PUBLISH', channel, waiting)
    end
    redis.call('DEL', KEYS[1], KEYS[2])
end
return remember(what == 'delete' and 1 or left)
