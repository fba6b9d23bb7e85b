-- A rate, by a sliding window or a token bucket. A caller that may wait gets a time in the future, and nobody else
-- gets that one. The same request again changes nothing. Times are microseconds of this server's clock, which goes on
-- from the last one `seen` where it was set back: it is so much `ahead` of the server's from then on.
-- KEYS[1] the rate that the server stores: permits, interval, share of a client, when all was forgotten, seen, ahead
-- KEYS[2] the reply to this request   KEYS[3] what all were given   KEYS[4] what a client was, if there is one
-- KEYS[5] clients, scored by when what they were given last counts no more
-- ARGV[1] rate or bucket   [2] request   [3] permits   [4] interval   [5] share, or 0; of the caller, where the server
--     has none   [6] what to do:
--   acquire: [7] permits   [8] longest wait   [9] the client   returns {1, how long to wait}, {0, until it could be had} or {-1, most}
--   release: [7] permits, the newest, or those of the acquire [8]   available: returns how many    rate: returns [3] to [5], as they count
--   clients: KEYS[4] as [5]   [7] how many   returns the latest ones   shares: KEYS[4] and on   returns what each used
--   set, init: [7] to [9] as [3] to [5]   [10] 1 to forget what was used; init only where the server has none
--   delete: forget the rate and what was used                                these return 1 if it was done

local time = redis.call('TIME')
local request, what, wanted = ARGV[2], ARGV[6], tonumber(ARGV[7])
local stored = redis.call('HMGET', KEYS[1], 'permits', 'interval', 'share', 'cleared', 'seen', 'ahead')
local rate, cleared, seen = {}, tonumber(stored[4] or 0), tonumber(stored[5] or 0)
local now = time[1] * 1000000 + time[2] + (stored[6] or 0)
if now < seen then
    redis.call('HSET', KEYS[1], 'ahead', string.format('%.0f', (stored[6] or 0) + seen - now))
    now = seen
end
for part = 1, 3 do rate[part] = tonumber(stored[1] and stored[part] or ARGV[2 + part]) end
local interval = rate[2]

-- never shortened: a key holds what others were given for later than this
local function keep(key, life)
    redis.call('PEXPIRE', key, math.max(math.ceil(life / 1000) + 1, redis.call('PTTL', key)))
end

local function see(field, life)
    redis.call('HSET', KEYS[1], field, string.format('%.0f', now))
    if not stored[1] then keep(KEYS[1], math.max(life, redis.call('PTTL', KEYS[3]) * 1000)) end
end

-- the times of the permits given, as a sorted set: in no span of the interval are there more
local window = {}
function window.used(key)
    redis.call('ZREMRANGEBYSCORE', key, '-inf', math.max(now - interval, cleared))
    return redis.call('ZCARD', key)
end
function window.free_at(key, _, over)  -- so many of the oldest must be an interval ago
    return redis.call('ZRANGE', key, over - 1, over - 1, 'WITHSCORES')[2] + interval
end
function window.take(key, _, at)
    for number = 1, wanted do redis.call('ZADD', key, at, request .. '/' .. number) end
    keep(key, at - now + interval)
end
function window.release(key, _, own)  -- the newest in `own`, but none that somebody waits for
    local given = ARGV[8] and {} or redis.call('ZREVRANGEBYSCORE', own, now, '-inf', 'LIMIT', 0, wanted)
    for number = 1, ARGV[8] and wanted or 0 do given[number] = ARGV[8] .. '/' .. number end
    for _, permit in ipairs(given) do redis.call('ZREM', key, permit) end
end

-- how many were out, and when: so many at once, and the bucket fills evenly within the interval
local bucket = {}
function bucket.used(key, most)
    local out, at = struct.unpack('>dd', redis.call('GET', key) or struct.pack('>dd', 0, now))
    return math.max(0, out - math.max(0, now - at) * most / interval - (at <= cleared and most or 0))
end
function bucket.free_at(_, most, over) return now + math.ceil(over * interval / most) end
function bucket.take(key, most, _, more)
    local out = bucket.used(key, most) + (more or wanted)
    local life = math.ceil(out * interval / most / 1000)
    if life > 0 then redis.call('SET', key, struct.pack('>dd', out, now), 'PX', life) else redis.call('DEL', key) end
end
function bucket.release(key, most) bucket.take(key, most, nil, -wanted) end

local way = ARGV[1] == 'bucket' and bucket or window
local limits = {{KEYS[3], rate[1]}}
if KEYS[4] and rate[3] > 0 then limits[2] = {KEYS[4], rate[3]} end

local ways = {}
function ways.rate() return rate end
function ways.available()
    local one, other = limits[1], limits[2] or limits[1]
    return math.max(0, math.floor(math.min(one[2] - way.used(unpack(one)), other[2] - way.used(unpack(other)))))
end
function ways.acquire()
    local given = way == window and redis.call('ZSCORE', KEYS[3], request .. '/1')
    if given then return {1, math.max(0, given - now)} end
    local at = now
    for _, limit in ipairs(limits) do
        local key, most = limit[1], limit[2]
        if wanted > most then return {-1, most} end
        local over = way.used(key, most) + wanted - most
        if over > 0 then at = math.max(at, way.free_at(key, most, over)) end
    end
    if at - now > math.max(0, tonumber(ARGV[8])) then return {0, at - now} end
    for _, limit in ipairs(limits) do way.take(limit[1], limit[2], at) end
    if limits[2] then
        redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', now)
        redis.call('ZADD', KEYS[5], 'GT', at + interval, ARGV[9])
        keep(KEYS[5], at - now + interval)
    end
    see('seen', at - now + interval)
    return {1, at - now}
end
function ways.clients() return redis.call('ZREVRANGEBYSCORE', KEYS[4], '+inf', now, 'LIMIT', 0, wanted) end
function ways.shares()
    local used = {}
    for at = 4, #KEYS do used[at - 3] = math.ceil(way.used(KEYS[at], rate[3])) end
    return used
end
function ways.release()
    for _, limit in ipairs(limits) do way.release(limit[1], limit[2], limits[#limits][1]) end
end
function ways.set()
    if what == 'init' and stored[1] then return 0 end
    redis.call('HSET', KEYS[1], 'permits', ARGV[7], 'interval', ARGV[8], 'share', ARGV[9])
    if ARGV[10] == '1' then see('cleared', 0) end
    return redis.call('PERSIST', KEYS[1]) * 0 + 1
end
ways.init = ways.set
function ways.delete()  -- clients have keys that this does not know: `cleared` lasts as long as what they hold
    local had = redis.call('HDEL', KEYS[1], 'permits', 'interval', 'share')
    stored[1] = nil
    see('cleared', math.max(interval, ARGV[4]))
    return math.min(had, 1)
end

-- the others change nothing, or know the request
local looks = {rate = true, available = true, clients = true, shares = true}
local remembers = not looks[what] and (what ~= 'acquire' or way == bucket)
local replied = remembers and redis.call('GET', KEYS[2])
if replied then return cjson.decode(replied) end
local reply = ways[what]()
if remembers then redis.call('SET', KEYS[2], cjson.encode({reply}), 'PX', 10000) end
return {reply}
