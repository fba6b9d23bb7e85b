-- At most n permits in any span of an interval: exact, by the times of the last n. A caller that may wait gets a
-- time in the future, and nobody else gets that one.
-- KEYS[i] times of the permits given, one of all and perhaps one of a client: sorted set, scored by time
-- ARGV[1] permits wanted   [2] interval   [3] longest wait   [4] name of this request
-- ARGV[4+i] how many permits KEYS[i] has in an interval
-- Times are microseconds of this server's clock. The same request again gets the same time.
-- returns {1, how long to wait} or {0, how long until it could be had}

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local wanted, interval, longest, request = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

local given = redis.call('ZSCORE', KEYS[1], request .. '/1')
if given then return {1, math.max(0, given - now)} end

local at = now
for index, key in ipairs(KEYS) do
    local most = tonumber(ARGV[4 + index])
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now - interval)
    local over = redis.call('ZCARD', key) + wanted - most
    if over > 0 then
        -- so many of the oldest must be an interval ago
        at = math.max(at, redis.call('ZRANGE', key, over - 1, over - 1, 'WITHSCORES')[2] + interval)
    end
end
if at - now > longest then return {0, at - now} end
for _, key in ipairs(KEYS) do
    for number = 1, wanted do redis.call('ZADD', key, at, request .. '/' .. number) end
    -- never shortened: the key holds what others were given for later than this
    local life = math.ceil((at - now + interval) / 1000) + 1
    redis.call('PEXPIRE', key, math.max(life, redis.call('PTTL', key)))
end
return {1, at - now}
