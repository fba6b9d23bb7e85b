-- Take the newest permits back, as if they had never been given.
-- KEYS[i] as in ratelimit.lua   ARGV[1] how many permits
-- returns nothing
for _, key in ipairs(KEYS) do redis.call('ZPOPMAX', key, ARGV[1]) end
