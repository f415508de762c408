-- Make the vector set of a path say what some of its records say, and note how far that has come.
-- KEYS: head, vectors, record...
-- ARGV: space, at (how far it had come; empty: that does not matter), through (how far it comes; empty: to the end), id...
-- Returns: {"OK"} | {"MOVED"}
-- luacheck: read globals guard path sets
local head_k, vectors_k, space, at, through = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local now, tag = guard.now(), path.tag(space)
local head = path.head(head_k, '', now, '', '0')
if head.space ~= space or head.vectors ~= tag or at ~= '' and redis.call('HGET', head_k, 'vectors_at') ~= at then
  return {'MOVED'}
end

local size = 2 * cjson.decode(space).dimension
for i = 3, #KEYS do
  local record, vector = path.record(KEYS[i], now), nil
  if record then
    vector = record.of == tag and redis.call('HGET', KEYS[i], 'vector') or record.next_of == tag and redis.call('HGET', KEYS[i], 'next')
  end
  if vector and #vector == size then
    sets.add(head, vectors_k, space, ARGV[i + 1], vector, '')
  else
    sets.remove(head, vectors_k, ARGV[i + 1])
  end
end
if at ~= '' and through == '' then
  redis.call('HDEL', head_k, 'vectors_at')
elseif at ~= '' then
  redis.call('HSET', head_k, 'vectors_at', through)
end
return {'OK'}
