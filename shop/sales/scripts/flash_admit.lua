-- Admit a buyer who has no unit to a flash sale that has units left. First come, first served.
-- KEYS[1] the sale, a hash   KEYS[2] admissions, a sorted set of buyers by the end of their lease in milliseconds
-- KEYS[3] buyers, a set   KEYS[4] places in the order of arrival, of admitted and of the first late buyers, a hash
-- All keys are in one slot.
-- ARGV[1] buyer   ARGV[2] lease in milliseconds   ARGV[3] most places to store
-- returns {word, sale, place}: unknown (no running sale here), bought, sold_out, admitted, or again (admitted already
-- by a call that runs or was cut off)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local sale = redis.call('HMGET', KEYS[1], 'sale', 'units', 'starts', 'ends')
if not sale[1] or now < tonumber(sale[3]) or now >= tonumber(sale[4]) then
    return {'unknown'}
end
-- the admission of a dead process ends with its lease
for _, late in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)) do
    redis.call('ZREM', KEYS[2], late)
    redis.call('HDEL', KEYS[4], late)
end
if redis.call('SISMEMBER', KEYS[3], ARGV[1]) == 1 then
    return {'bought', sale[1]}
end
local lease = now + ARGV[2]
local place = redis.call('HGET', KEYS[4], ARGV[1])
local late = redis.call('SCARD', KEYS[3]) + redis.call('ZCARD', KEYS[2]) >= tonumber(sale[2])
if place and redis.call('ZSCORE', KEYS[2], ARGV[1]) then
    redis.call('ZADD', KEYS[2], lease, ARGV[1])
    return {'again', sale[1], tonumber(place)}
end
-- a late buyer who comes again keeps the place
local new = not place
place = tonumber(place or redis.call('HINCRBY', KEYS[1], 'arrivals', 1))
if new and (not late or redis.call('HLEN', KEYS[4]) < tonumber(ARGV[3])) then
    redis.call('HSET', KEYS[4], ARGV[1], place)
    redis.call('PEXPIREAT', KEYS[4], tonumber(sale[4]) + 3600000)
end
if late then
    return {'sold_out', sale[1], place}
end
redis.call('ZADD', KEYS[2], lease, ARGV[1])
redis.call('PEXPIREAT', KEYS[2], tonumber(sale[4]) + 3600000)
return {'admitted', sale[1], place}
