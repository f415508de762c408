-- Puts vectors of another embedding space beside those of the path's, each if its record still says what the vector was made of.
-- KEYS: head, record...
-- ARGV: fence, space, digest_and_vector... (SHA-1 of the text, hexadecimal)
-- Returns: {"OK", staged} | {"LOST", holder, fence} | {"REGRESSED"}
-- luacheck: read globals guard path
local now, tag = guard.now(), path.tag(ARGV[2])
local head, refused = path.head(KEYS[1], '', now, '', '0')
local refusal = refused or guard.fence(ARGV[1], redis.call('HGET', KEYS[1], 'fence'))

if refusal then
  return refusal
end
local staged = 0
for i = 2, #KEYS do
  local record = path.record(KEYS[i], now)
  if record and record.of ~= tag and redis.sha1hex(redis.call('HGET', KEYS[i], 'text')) == ARGV[2 * i - 1] then
    redis.call('HSET', KEYS[i], 'next', ARGV[2 * i], 'next_of', tag, 'next_vid', guard.text(head.seq))
    staged = staged + 1
  end
end
return {'OK', staged}
