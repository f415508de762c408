-- Leaves records their vector of the path's embedding space alone; where it stood beside another one, it takes that one's place.
-- KEYS: head, record...
-- ARGV: fence
-- Returns: {"OK", changed} | {"LOST", holder, fence} | {"REGRESSED"}
-- luacheck: read globals guard path
local now = guard.now()
local head, refused = path.head(KEYS[1], '', now, '', '0')
local refusal = refused or guard.fence(ARGV[1], redis.call('HGET', KEYS[1], 'fence'))

if refusal then
  return refusal
end
local tag, changed = head.space and path.tag(head.space), 0
for i = 2, #KEYS do
  local key, record = KEYS[i], path.record(KEYS[i], now)
  if record and (record.next_of ~= '' or record.of ~= '' and record.of ~= tag) then
    if record.of ~= tag and record.next_of == tag then
      redis.call('HSET', key, 'vector', redis.call('HGET', key, 'next'), 'of', tag, 'vid', record.next_vid)
    elseif record.of ~= tag then
      redis.call('HDEL', key, 'vector', 'of', 'vid')
    end
    redis.call('HDEL', key, 'next', 'next_of', 'next_vid')
    changed = changed + 1
  end
end
return {'OK', changed}
