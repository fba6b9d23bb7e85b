-- Shared by the scripts of a resource with places: who holds some, who waits for some, and in which order.
--
-- A lock is one place; a semaphore has n; of a read/write lock a reader takes one of very many and a writer all.
-- KEYS[1] holders: '#' -> used, next, expires, fence; owner -> shared, exclusive, ends, token, request
-- KEYS[2] queue:   owner, scored by arrival
-- KEYS[3] waiters: owner -> "shared exclusive alive_until channel request"
-- All times are microseconds of this server's clock. `next` is no later than the first end of a lease, `expires` is
-- when the key itself goes. `fence` is the newest token: the time, or one more than the last if that is higher, so
-- it grows through a loss of all data and through a clock that steps back, and only both together defeat it.
-- Who has given everything back stays for a while with no places, and with the request that did it: a second copy
-- of that request is told the same.

local NEVER = 9007199254740991
local RETAIN = 60000000  -- how long the newest token outlives the last holder, at least
local REMEMBER = 10000000  -- how long a request that ended a hold is remembered: no client goes on for so long

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local used, next_end, expires, fence = 0, NEVER, 0, 0
local freed = false  -- whether a lease ended that nobody had noticed yet
local renewed_expiry = false

-- records are doubles in a row, big-endian, which hold every whole number that occurs; a holder's request follows
local function read_holder(text)
    local shared, exclusive, ends, token = struct.unpack('>dddd', text)
    return {shared = shared, exclusive = exclusive, ends = ends, token = token, request = string.sub(text, 33)}
end

local function written(holder)
    if holder.ends < next_end and (holder.shared + holder.exclusive > 0 or next_end == NEVER) then
        next_end = holder.ends
    end
    if holder.ends + RETAIN > expires then
        expires = holder.ends + 2 * RETAIN
        renewed_expiry = true
    end
    return struct.pack('>dddd', holder.shared, holder.exclusive, holder.ends, holder.token) .. holder.request
end

-- how many places a holder takes of `capacity`
local function weight(holder, capacity)
    if holder.exclusive > 0 then return capacity end
    return holder.shared
end

local function drop_expired(capacity)
    used, next_end = 0, NEVER
    local fields = redis.call('HGETALL', KEYS[1])
    for index = 1, #fields, 2 do
        if fields[index] ~= '#' then
            local holder = read_holder(fields[index + 1])
            local places = weight(holder, capacity)
            if holder.ends <= now then
                redis.call('HDEL', KEYS[1], fields[index])
                freed = freed or places > 0
            else
                used = used + places
                next_end = math.min(next_end, holder.ends)
            end
        end
    end
end

-- read the state, let go of what has expired, and return the record of `owner` or nil
local function open(owner, capacity)
    local found = redis.call('HMGET', KEYS[1], '#', owner)
    if not found[1] then return nil end
    used, next_end, expires, fence = struct.unpack('>dddd', found[1])
    local holder = found[2] and read_holder(found[2])
    if now >= next_end then
        drop_expired(capacity)
        if holder and holder.ends <= now then return nil end
    end
    return holder or nil
end

-- write the state, and the record of `owner`
local function close(owner, holder)
    local record = written(holder)
    redis.call('HSET', KEYS[1], owner, record, '#', struct.pack('>dddd', used, next_end, expires, fence))
    if renewed_expiry then redis.call('PEXPIRE', KEYS[1], math.ceil((expires - now) / 1000)) end
end

local function new_token()
    fence = math.max(now, fence + 1)
    return fence
end

local function leave_queue(owner)
    redis.call('ZREM', KEYS[2], owner)
    redis.call('HDEL', KEYS[3], owner)
end

local function read_waiter(text)
    local shared, exclusive, alive, channel, request = string.match(text, '^(%d+) (%d+) (%d+) (%S+) (%S+)$')
    return {shared = tonumber(shared), exclusive = tonumber(exclusive), channel = channel, request = request,
            alive = tonumber(alive)}
end

-- Give free places to the queue's head, and on, in order. Each is told on its process's channel and has `claim` to
-- confirm. One whose process does not listen (`counted`: this server would know) is passed over: it keeps its
-- place if `fair`. `asker` is answered by this script itself. Returns the asker's new holder, or nil.
local function grant(capacity, claim, lease, fair, counted, asker)
    local index = 0
    while used < capacity do
        local owner = redis.call('ZRANGE', KEYS[2], index, index)[1]
        if not owner then return nil end
        local text = redis.call('HGET', KEYS[3], owner)
        local waiter = text and read_waiter(text)
        if not waiter or waiter.alive < now then
            leave_queue(owner)
        elseif used + weight(waiter, capacity) > capacity then
            return nil
        else
            local holder = {shared = waiter.shared, exclusive = waiter.exclusive, ends = now + claim,
                            token = math.max(now, fence + 1), request = waiter.request}
            local heard = 1
            if owner == asker then
                holder.ends = now + lease
            else
                heard = redis.call('PUBLISH', waiter.channel,
                    string.format('%s %.0f %.0f', waiter.request, holder.token, holder.ends))
            end
            if heard == 0 and counted then
                if fair then index = index + 1 else leave_queue(owner) end
            else
                new_token()
                leave_queue(owner)
                used = used + weight(holder, capacity)
                if owner == asker then return holder end
                redis.call('HSET', KEYS[1], owner, written(holder))
            end
        end
    end
    return nil
end
