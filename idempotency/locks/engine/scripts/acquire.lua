-- Take places, or queue for them. The same request again changes nothing and gets the same reply.
-- KEYS as in places.lua
-- ARGV[1] as in places.lua   [2] request   [3] owner   [4] channel of the owner's process
--      [5] stay: 1 queues where nothing is free   [6] again: 1 if this request may be queued already
-- returns {1, token, now, lease end, the places if it was all} if held, {0, position, first end of a lease, now} if
--     not; {-1} upgrade refused; {-2} the owner has gone on since: this copy is late

local owner, request, channel, stay, again = ARGV[3], ARGV[2], ARGV[4], ARGV[5] == '1', ARGV[6] == '1'
local name, all = string.sub(ARGV[1], 65), shared + exclusive == 0

-- `owner` keeps the first place, and `owner/2` and so on have the others
local function split(holder)
    if name ~= '/' then return end
    for number = 2, holder.shared do
        holder.shared = 1
        redis.call('HSET', KEYS[1], owner .. '/' .. number, written(holder))
    end
end

local mine = open(owner)
if is_late(owner, mine, request) then return {-2} end

if mine and mine.shared + mine.exclusive > 0 then
    if mine.request ~= request then
        if exclusive > 0 and mine.exclusive == 0 then return {-1} end
        local before = weight(mine)
        mine.shared, mine.exclusive, mine.request = mine.shared + shared, mine.exclusive + exclusive, request
        used = used - before + weight(mine)
    end
    mine.ends = math.max(mine.ends, now + lease)
    split(mine)
    close(owner, mine)
    return {1, mine.token, now, mine.ends, all and mine.shared or nil}
end

if mine and mine.token == OVER and mine.request == request then return {0, 0, next_end, now} end

if all then
    shared = redis.call('ZCARD', KEYS[2]) == 0 and capacity - used or 0
    if shared <= 0 then
        grant()
        close(owner, nothing(request, OVER))
        return {0, 0, next_end, now}
    end
end

local wanted = {shared = shared, exclusive = exclusive, channel = channel, name = name ~= '/' and name or ''}
local fits = used + weight(wanted) <= capacity

if fits and (not fair or redis.call('ZCARD', KEYS[2]) == 0) then
    if again then leave_queue(owner) end
    wanted.ends, wanted.token, wanted.request = now + lease, new_token(), request
    used = used + weight(wanted)
    split(wanted)
    close(owner, wanted)
    return {1, wanted.token, now, wanted.ends, all and shared or nil}
end

local queued = fits or stay
if queued then
    local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
    redis.call('ZADD', KEYS[2], 'NX', math.max(now, (tonumber(last) or 0) + 1), owner)
    redis.call('HSET', KEYS[3], owner,
        string.format('%.0f %.0f %.0f %s %s', shared, exclusive, now + patience, channel, request) .. wanted.name)
    redis.call('PEXPIRE', KEYS[2], math.ceil((patience + RETAIN) / 1000))
    redis.call('PEXPIRE', KEYS[3], math.ceil((patience + RETAIN) / 1000))
end
local position = queued and redis.call('ZRANK', KEYS[2], owner) or 0
local holder
if fits or freed then holder = grant(owner) end
local leaves = not holder and not stay and (queued or again)
if leaves then
    leave_queue(owner)
    grant()  -- a waiter behind may fit where this one did not
end
if fits or freed or leaves then
    -- an owner without places leaves a record too: the state is written in either case
    if holder then split(holder) end
    close(owner, holder or nothing(request, leaves and OVER or 0))
    if holder then return {1, holder.token, now, holder.ends} end
end
return {0, position, next_end, now}
