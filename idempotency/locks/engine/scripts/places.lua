-- Shared by the scripts of a resource with places: its holders, its waiters and their order.
--
-- A lock is one place; a semaphore has n; of a read/write lock a reader takes one of very many and a writer all.
-- KEYS[1] holders: '#' -> used, next, expires, fence, forget; owner -> shared, exclusive, ends, token, channel, request
-- KEYS[2] queue:   owner, scored by arrival
-- KEYS[3] waiters: owner -> "shared exclusive alive_until channel request name"
-- KEYS[4] number of a semaphore's permits, where the server stores it; other resources have no such key
-- ARGV[1] doubles in a row: shared places, exclusive (0 or 1; both 0: all that are free), capacity, lease, claim, how
--     long an owner counts as alive when it waits, fair (1: nobody passes the queue), counted (1: PUBLISH here counts
--     all listeners); of an acquire then ' ' and a name as below, or '/' to become a holder a place
-- All times are microseconds of this server's clock. `next` is no later than the first end of a lease, `expires` is
-- when the key itself goes. `fence` is the newest token: the time, or one more than the last if that is higher, so
-- it grows through a loss of all data and through a clock that steps back, and only both together defeat it.
-- An owner that has given everything back stays for a while without places, with its last request: a second copy
-- of that request gets the same reply. A request is "process:number", and a holder that is one thread or task numbers
-- one after the other, so that a copy which comes after a later request of its own is known by its number, and
-- changes nothing. Holders with a name that callers give ("named:…") may be many at once, and are not so ordered.
-- A record without places whose token is OVER is of an acquire that was given up. `forget` is when such records are
-- looked through, all at once and not more often than they last, so that owners who come once leave nothing behind
-- and cost the others little.

local NEVER = 9007199254740991
local OVER = -1
local RETAIN = 60000000  -- how long the newest token outlives the last holder, at least
local REMEMBER = 10000000  -- how long a request that ended a hold is remembered: no client goes on for so long

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local shared, exclusive, callers, lease, claim, patience, fair, counted = struct.unpack('>dddddddd', ARGV[1])
fair, counted = fair == 1, counted == 1
local used, next_end, expires, fence, forget = 0, NEVER, 0, 0, NEVER
local freed = false  -- whether a lease ended that nobody had noticed yet
local renewed_expiry = false
local denied  -- what the server said where this user may not PUBLISH

-- records are doubles in a row, big-endian, which hold every whole number that occurs; the channel of the holder's
-- process follows up to a bar, its request and, after a space, the name of the caller that a permit is for
local function read_holder(text)
    local shared, exclusive, ends, token = struct.unpack('>dddd', text)
    local channel, request, name = string.match(text, '^(%S*)|(%S*)(.*)$', 33)
    if not channel then request, name = string.match(text, '^(%S*)(.*)$', 33) end  -- of a version before
    return {shared = shared, exclusive = exclusive, ends = ends, token = token, channel = channel, request = request,
            name = name}
end

-- how many places there are: of a semaphore without a number on the server what the caller says
local function places() return tonumber(KEYS[4] and redis.call('GET', KEYS[4]) or callers) end
local capacity = places()

local function written(holder)
    if holder.shared + holder.exclusive > 0 then
        next_end = math.min(next_end, holder.ends)
    elseif forget == NEVER then
        forget = now + REMEMBER
    end
    if holder.ends + RETAIN > expires then
        expires = holder.ends + 2 * RETAIN
        renewed_expiry = true
    end
    return struct.pack('>dddd', holder.shared, holder.exclusive, holder.ends, holder.token)
        .. (holder.channel and holder.channel .. '|' or '') .. holder.request .. (holder.name or '')
end

-- whether `owner` is one thread or task, or one permit
local function is_ordered(owner) return string.sub(owner, 1, 6) ~= 'named:' end

-- whether `holder`, the record of `owner`, was written by a later request than this one
local function is_late(owner, holder, request)
    local last = holder and holder.request or ''
    -- of the numbers of one process the later one is longer, or as long and greater: mostly that is all there is to do
    if #request > #last or (#request == #last and request >= last) then return false end
    local process = string.match(request, '^(.*:)%d+$')
    return process and is_ordered(owner) and process == string.match(last, '^(.*:)%d+$')
end

-- what is left of an owner without places: that this request was the last, and whether it is given up
local function nothing(request, token)
    return {shared = 0, exclusive = 0, ends = now + REMEMBER, token = token, request = request}
end

-- how many places a holder takes
local function weight(holder)
    if holder.exclusive > 0 then return capacity end
    return holder.shared
end

-- every owner and its record, also without places
local function records()
    local fields, index = redis.call('HGETALL', KEYS[1]), -1
    return function()
        index = index + (fields[index + 2] == '#' and 4 or 2)
        if fields[index] then return fields[index], read_holder(fields[index + 1]) end
    end
end

-- notify the process of a holder that another one has ended its hold: by force, or `released`
local function notify_of_end(owner, holder, released)
    local token = released and -holder.token or holder.token
    redis.pcall('PUBLISH', holder.channel or '', string.format('- %.0f ', token) .. KEYS[1] .. ' ' .. owner)
end

local function drop_expired()
    used, next_end, forget = 0, NEVER, NEVER
    for owner, holder in records() do
        local places = weight(holder)
        if holder.ends <= now then
            redis.call('HDEL', KEYS[1], owner)
            freed = freed or places > 0
        elseif places > 0 then
            used = used + places
            next_end = math.min(next_end, holder.ends)
        else
            forget = now + REMEMBER
        end
    end
end

-- read the state, let go of what has expired, and return the record of `owner` or nil
local function open(owner)
    local found = redis.call('HMGET', KEYS[1], '#', owner)
    if not found[1] then return nil end
    used, next_end, expires, fence = struct.unpack('>dddd', found[1])
    if #found[1] > 32 then forget = struct.unpack('>d', found[1], 33) end  -- a version before wrote none
    local holder = found[2] and read_holder(found[2])
    if now >= next_end or now >= forget then
        drop_expired()
        if holder and holder.ends <= now then return nil end
    end
    return holder or nil
end

-- write the state, and the record of `owner`, if it is given
local function close(owner, holder)
    local record = holder and written(holder)
    local state = struct.pack('>ddddd', used, next_end, expires, fence, forget)
    if holder then redis.call('HSET', KEYS[1], owner, record, '#', state) else redis.call('HSET', KEYS[1], '#', state) end
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
    local shared, exclusive, alive, channel, request, name =
        string.match(text, '^(%d+) (%d+) (%d+) (%S+) (%S+)(.*)$')
    return {shared = tonumber(shared), exclusive = tonumber(exclusive), channel = channel, request = request,
            name = name, alive = tonumber(alive)}
end

-- Give free places to the queue's head, and on, in order. Each is notified on its process's channel and has `claim`
-- to confirm. One whose process does not listen (`counted`: this server would know) is passed over, also where there
-- is not room for it yet: it keeps its place if `fair`. `asker` is answered by this script itself. Returns the
-- asker's new holder, or nil.
local function grant(asker)
    if used == 0 then next_end = NEVER end
    local index = 0
    while used < capacity do
        local owner = redis.call('ZRANGE', KEYS[2], index, index)[1]
        if not owner then return nil end
        local text = redis.call('HGET', KEYS[3], owner)
        local waiter = text and read_waiter(text)
        if not waiter or waiter.alive < now then
            leave_queue(owner)
        else
            local holder = {shared = waiter.shared, exclusive = waiter.exclusive, ends = now + claim,
                            token = math.max(now, fence + 1), channel = waiter.channel, request = waiter.request,
                            name = waiter.name}
            local fits, heard = used + weight(waiter) <= capacity, 1
            if owner == asker then
                holder.ends = now + lease
            elseif fits then
                heard = redis.pcall('PUBLISH', waiter.channel,
                    string.format('%s %.0f %.0f', waiter.request, holder.token, holder.ends))
                if type(heard) == 'table' then heard, denied, counted = 0, heard.err, true end
            elseif counted then
                heard = redis.call('PUBSUB', 'NUMSUB', waiter.channel)[2]
            end
            if not fits and heard > 0 then return nil end
            if heard == 0 and counted then
                if fair then index = index + 1 else leave_queue(owner) end
            else
                new_token()
                leave_queue(owner)
                used = used + weight(holder)
                if owner == asker then return holder end
                redis.call('HSET', KEYS[1], owner, written(holder))
            end
        end
    end
    return nil
end
