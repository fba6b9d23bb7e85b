-- Read who has places and who waits for some. Writes nothing.
-- KEYS and ARGV[1] as in places.lua
-- returns {now, {{owner, shared, exclusive, lease end, token}, ...}, {{owner, exclusive}, ...} in the queue's order}

-- the name of the caller, where `field` is of one permit
local function called(field, record) return record.name ~= '' and string.sub(record.name, 2) or field end

local holders, waiters = {}, {}
for owner, holder in records() do
    if holder.ends > now and holder.shared + holder.exclusive > 0 then
        table.insert(holders, {called(owner, holder), holder.shared, holder.exclusive, holder.ends, holder.token})
    end
end
for _, owner in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    local text = redis.call('HGET', KEYS[3], owner)
    local waiter = text and read_waiter(text)
    if waiter and waiter.alive >= now then table.insert(waiters, {called(owner, waiter), waiter.exclusive}) end
end
return {now, holders, waiters}
