-- Put a member into a set whose members end by themselves.
-- KEYS[1] the member   ARGV[1] its life in milliseconds   [2] name of this request
-- returns 1 if it was not there, also to a second copy of the request that put it there; else 0
if redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[1]) then return 1 end
return redis.call('GET', KEYS[1]) == ARGV[2] and 1 or 0
