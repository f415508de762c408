-- Lists records as pending that lack a vector of the path's embedding space, and takes those off the list that have one or are gone.
-- KEYS: head, pending, record...
-- ARGV: id...
-- Returns: {"OK", lacking} | {"REGRESSED", what}
-- luacheck: read globals guard path
local now = guard.now()
local head, refused = path.head(KEYS[1], '', now, '', '0')

if refused then
  return refused
end
redis.call('SCARD', KEYS[2])
local lacking = 0
for i, id in ipairs(ARGV) do
  local record = path.record(KEYS[i + 2], now)
  if record and path.vid(head, record) == '' then
    redis.call('SADD', KEYS[2], id)
    lacking = lacking + 1
  else
    redis.call('SREM', KEYS[2], id)
  end
end
return {'OK', lacking}
