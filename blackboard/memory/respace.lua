-- Makes another embedding space that of a path: from here on every record is found by its vector of that one.
-- KEYS: head, log, migration
-- ARGV: fence, space, status
-- Returns: {"OK"} | {"ENDED"} | {"LOST", holder, fence} | {"REGRESSED"}
-- luacheck: read globals guard path
local space, status = ARGV[2], ARGV[3]
local now = guard.now()
local head, refused = path.head(KEYS[1], '', now, '', '0')
local refusal = refused or guard.fence(ARGV[1], redis.call('HGET', KEYS[1], 'fence'))
local noted = redis.call('HMGET', KEYS[3], 'status', 'target', 'source')

if refusal then
  return refusal
end
if noted[1] == status and head.space == space then
  return {'OK'}
end
if not head.space or (space ~= noted[2] and space ~= noted[3]) then
  return {'ENDED'}
end
redis.call('XLEN', KEYS[2])

path.log(head, KEYS[2], 'space', '', '0')
if space == noted[2] then
  redis.call('HSET', KEYS[3], 'source', head.space)
end
redis.call('HSET', KEYS[3], 'status', status, 'since', guard.text(now))
redis.call('HDEL', KEYS[3], 'swept')
redis.call('HSET', KEYS[1], 'seq', guard.text(head.seq), 'space', space)
return {'OK'}
