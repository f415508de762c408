-- Removes an artifact that has been marked for longer than the grace; gives way if it was put or referred to since it was
-- looked at.
-- KEYS: head, refs, chunk...
-- ARGV: revision, grace_us
-- Returns: {"OK"} | {"MOVED"}
-- luacheck: read globals guard
local stored = redis.call('HMGET', KEYS[1], 'revision', 'marked')
if stored[1] ~= ARGV[1] or not stored[2] or guard.now() - tonumber(stored[2]) < tonumber(ARGV[2]) then
  return {'MOVED'}
end
-- The head goes last: where a script may be cut off, what is left is found from it.
for i = 2, #KEYS, 1000 do
  redis.call('UNLINK', unpack(KEYS, i, math.min(i + 999, #KEYS)))
end
redis.call('DEL', KEYS[1])
return {'OK'}
