-- Admit a buyer to a flash sale: fewer than its units are taken, and he has none. First come, first served.
-- KEYS[1] the sale, a hash   KEYS[2] admissions, a sorted set of buyers by the end of their lease in milliseconds
-- KEYS[3] buyers, a set   KEYS[4] the admitted buyers' places in the order of arrival, a hash; all of one slot
-- ARGV[1] buyer   ARGV[2] lease in milliseconds
-- returns {word, sale, place}: unknown (no sale that runs is known here), bought, sold_out, admitted, or again
-- (he is admitted already by a call that runs or was cut off: its place and its unit are his)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local sale = redis.call('HMGET', KEYS[1], 'sale', 'units', 'starts', 'ends')
if not sale[1] or now < tonumber(sale[3]) or now >= tonumber(sale[4]) then
    return {'unknown'}
end
-- an admission whose process died goes back when its lease is over
for _, late in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)) do
    redis.call('ZREM', KEYS[2], late)
    redis.call('HDEL', KEYS[4], late)
end
if redis.call('SISMEMBER', KEYS[3], ARGV[1]) == 1 then
    return {'bought', sale[1]}
end
local lease = now + ARGV[2]
local place = redis.call('HGET', KEYS[4], ARGV[1])
if place and redis.call('ZSCORE', KEYS[2], ARGV[1]) then
    redis.call('ZADD', KEYS[2], lease, ARGV[1])
    return {'again', sale[1], tonumber(place)}
end
place = redis.call('HINCRBY', KEYS[1], 'arrivals', 1)
if redis.call('SCARD', KEYS[3]) + redis.call('ZCARD', KEYS[2]) >= tonumber(sale[2]) then
    return {'sold_out', sale[1], place}
end
redis.call('ZADD', KEYS[2], lease, ARGV[1])
redis.call('HSET', KEYS[4], ARGV[1], place)
for _, name in ipairs({KEYS[2], KEYS[4]}) do
    redis.call('PEXPIREAT', name, tonumber(sale[4]) + 3600000)
end
return {'admitted', sale[1], place}
