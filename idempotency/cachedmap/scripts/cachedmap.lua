-- Entries that end by themselves, of which the least recently used go first.
-- KEYS[1] values: key -> when it ends, for how long it may be unused, value   KEYS[2] keys, scored by their last use
-- KEYS[3] number of changes so far   KEYS[4] channel on which a change is published: '*' of all, or of a key, which
--     follows: '+' created, '=' updated, '-' removed; '~' expired, as it is found; '!' least recently used, and dropped
-- ARGV[1] what to do:
--   get: [2] and on: keys        returns {changes, and for each: value or nil, how long it lasts if it is not used}
--   life: [2] key                returns {how long it lasts}, and is no use of it; 0 if there is none
--   page: [2] cursor [3] about how many   returns {next cursor, and for each: key, value}, and is no use of them
--   size                         returns {how many entries there are}
--   fill: [2] life [3] longest time unused [4] most entries [5] key [6] value [7] changes when its reading began
--                                returns {1}, or {0} if there was one since: nothing is stored
--   set: as fill, at any time, and of any number of keys with their values; it is a change
--   add: as set where there is no entry; or else it returns {0}
--   replace: as set where there is one, or else {0}; where its value is not [7], if that is given, {2}
--   remove: [2] and on: keys     change: the same, of a map without values     clear
-- Times are microseconds of this server's clock; 0 is for ever.

local NEVER = 9007199254740991
local REMEMBER = 3600000  -- milliseconds for which changes are counted: no reading lasts for longer
local what = ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function drop(each, why)
    if why and redis.call('HEXISTS', KEYS[1], each) == 1 then redis.pcall('PUBLISH', KEYS[4], why .. each) end
    redis.call('HDEL', KEYS[1], each)
    redis.call('ZREM', KEYS[2], each)
end

-- the value of an entry, when it ends, how long it may be unused, and until when; nil, and it is gone, if it has ended
local function open(each)
    local text = redis.call('HGET', KEYS[1], each)
    if not text then return drop(each) end
    local ends, idle, value_at = struct.unpack('>dd', text)
    local unused_at = (redis.call('ZSCORE', KEYS[2], each) or 0) + idle
    if now >= math.min(ends, unused_at) then return drop(each, '~') end
    return string.sub(text, value_at), ends, idle, unused_at
end

if what == 'get' then
    local reply = {redis.call('GET', KEYS[3]) or '0'}
    for at = 2, #ARGV do
        local value, ends, idle = open(ARGV[at])
        if value then redis.call('ZADD', KEYS[2], now, ARGV[at]) end
        reply[2 * at - 2], reply[2 * at - 1] = value or false, value and math.min(ends - now, idle) or 0
    end
    return reply
end
if what == 'life' then
    local value, ends, _, unused_at = open(ARGV[2])
    return {value and math.min(ends, unused_at) - now or 0}
end
if what == 'size' then
    for _, each in ipairs(redis.call('HKEYS', KEYS[1])) do open(each) end
    return {redis.call('HLEN', KEYS[1])}
end
if what == 'page' then
    local cursor, found = unpack(redis.call('HSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3]))
    local reply = {cursor}
    for at = 1, #found, 2 do
        local value = open(found[at])
        if value then reply[#reply + 1], reply[#reply + 2] = found[at], value end
    end
    return reply
end
if what == 'add' and open(ARGV[5]) then return {0} end
if what == 'replace' then
    local value = open(ARGV[5])
    if not value then return {0} end
    if ARGV[7] and value ~= ARGV[7] then return {2} end
end
if what == 'fill' then
    if (redis.call('GET', KEYS[3]) or '0') ~= ARGV[7] then return {0} end
else
    redis.call('INCR', KEYS[3])
    redis.call('PEXPIRE', KEYS[3], REMEMBER)
end
if what == 'clear' then
    redis.call('PUBLISH', KEYS[4], '*')
    redis.call('DEL', KEYS[1], KEYS[2])
    return {1}
end
if what == 'remove' or what == 'change' then
    for at = 2, #ARGV do
        redis.call('PUBLISH', KEYS[4], (what == 'remove' and '-' or '=') .. ARGV[at])
        drop(ARGV[at])
    end
    return {1}
end

local life, idle, most = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local left = redis.call('PTTL', KEYS[1])
local times = struct.pack('>dd', life > 0 and now + life or NEVER, idle > 0 and idle or NEVER)
for at = 5, #ARGV - 1, 2 do
    if what ~= 'fill' then redis.call('PUBLISH', KEYS[4], (open(ARGV[at]) and '=' or '+') .. ARGV[at]) end
    redis.call('HSET', KEYS[1], ARGV[at], times .. ARGV[at + 1])
    redis.call('ZADD', KEYS[2], now, ARGV[at])
end
for _, oldest in ipairs(redis.call('ZRANGE', KEYS[2], 0, 9)) do open(oldest) end
local over = redis.call('ZCARD', KEYS[2]) - most
if over > 0 then
    for _, oldest in ipairs(redis.call('ZRANGE', KEYS[2], 0, over - 1)) do drop(oldest, '!') end
end
for _, each in ipairs({KEYS[1], KEYS[2]}) do  -- as long as the entry that lasts longest
    if life == 0 then redis.call('PERSIST', each)
    elseif left ~= -1 then redis.call('PEXPIRE', each, math.max(left, math.ceil(life / 1000))) end
end
return {1}
