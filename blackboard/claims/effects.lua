-- Lists the effects of a thread: key and record in turn, the open ones and, if asked for, the settled ones.
-- KEYS: meta, effects, effects_open
-- ARGV: settled
-- Returns: {open, settled}
-- luacheck: read globals guard
local meta = redis.call('HMGET', KEYS[1], 'status', 'expires')
if meta[1] == 'deleted' or guard.expired(meta[2], guard.now()) then
  return {{}, {}}
end
return {redis.call('HGETALL', KEYS[3]), ARGV[1] == '1' and redis.call('HGETALL', KEYS[2]) or {}}
