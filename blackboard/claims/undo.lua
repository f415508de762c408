-- Undoes an acquire whose outcome nobody waits for: the owner can never be granted the lease again, and loses it now.
-- KEYS: meta, lock, ops
-- ARGV: owner, keep_ms
-- Returns: {"OK", released}
-- luacheck: read globals guard
local owner, keep = ARGV[1], tonumber(ARGV[2])
local holder = redis.call('HGET', KEYS[1], 'holder')
local _, driver = guard.split(redis.call('GET', KEYS[2]))
local life = redis.call('PTTL', KEYS[3])
redis.call('ZCARD', KEYS[3])

-- On a full server ZADD is refused, and so is the grant that it forestalls; the lock still goes.
if driver == owner then
  redis.call('DEL', KEYS[2])
end
if holder == owner then
  redis.call('HDEL', KEYS[1], 'holder')
end
local marked = redis.pcall('ZADD', KEYS[3], guard.text(guard.now()), 'dead:' .. owner)
if type(marked) == 'number' and life < keep then
  redis.call('PEXPIRE', KEYS[3], keep)
end
return {'OK', driver == owner and 1 or 0}
