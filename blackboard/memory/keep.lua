-- Begin to keep the vectors of a path in a vector set, with none in it yet, or keep none any more.
-- KEYS: head, vectors
-- ARGV: space (that of the path; empty: keep none)
-- Returns: {"OK"} | {"MOVED"}
-- luacheck: read globals path
local head_k, vectors_k, space = KEYS[1], KEYS[2], ARGV[1]
if space ~= '' and redis.call('HGET', head_k, 'space') ~= space then return {'MOVED'} end

redis.call('UNLINK', vectors_k)
if space == '' then
  redis.call('HDEL', head_k, 'vectors', 'vectors_at')
else
  redis.call('HSET', head_k, 'vectors', path.tag(space), 'vectors_at', '0')
end
return {'OK'}
