-- A count that goes down to zero once, and who waits for that.
-- KEYS[1] the latch: 'count', and a field for each request that counted down   KEYS[2] who waits: "channel request"
-- ARGV[1] what to do: open, down, look or leave
--   open: [2] count   [3] life in milliseconds         returns 1, or 0 if it is open already
--   down: [2] request                                  returns what is left
--   look: [2] "channel request", or '' not to wait     returns what is left
--   leave: [2] "channel request"                       returns 0
-- A latch that was never opened, or has reached zero, is nothing: what is left is 0.

local what = ARGV[1]
if what == 'open' then
    if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
    redis.call('HSET', KEYS[1], 'count', ARGV[2])
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    return 1
end

if what == 'leave' then
    redis.call('SREM', KEYS[2], ARGV[2])
    return 0
end

local left = tonumber(redis.call('HGET', KEYS[1], 'count') or 0)
if what == 'look' then
    if left > 0 and ARGV[2] ~= '' then
        redis.call('SADD', KEYS[2], ARGV[2])
        redis.call('PEXPIRE', KEYS[2], redis.call('PTTL', KEYS[1]))
    end
    return left
end

if left == 0 or redis.call('HSETNX', KEYS[1], 'request ' .. ARGV[2], 1) == 0 then return left end
left = redis.call('HINCRBY', KEYS[1], 'count', -1)
if left == 0 then
    for _, waiter in ipairs(redis.call('SMEMBERS', KEYS[2])) do
        local channel, request = string.match(waiter, '^(%S+) (%S+)$')
        redis.call('PUBLISH', channel, request)
    end
    redis.call('DEL', KEYS[1], KEYS[2])
end
return left
