-- Completes an upload: the artifact is stored when its head is written, which comes last.
-- KEYS: head, chunk...
-- ARGV: upload, until, replaces, size, chunk, checks, file, media_type, name, chunks
-- Returns: {"OK"} | {"HAVE"} | {"MISSING", number} | {"TOOLATE"}
--
-- The first `chunks` chunk keys are the upload's own, what follows are those of the upload that it replaces, because
-- some of them were lost. HAVE: it is stored already, and the upload's own chunks are gone again. until is in microseconds.
-- luacheck: read globals guard
local upload, replaces, size, chunk, chunks = ARGV[1], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[10])
local now = guard.now()
local stored = redis.call('HGET', KEYS[1], 'upload')

local function unlink(first, last)
  for i = first, last, 1000 do
    redis.call('UNLINK', unpack(KEYS, i, math.min(i + 999, last)))
  end
end

if stored == upload then
  return {'OK'}
end
if stored and stored ~= replaces then
  redis.call('HSET', KEYS[1], 'touched', guard.text(now))
  redis.call('HINCRBY', KEYS[1], 'revision', 1)
  redis.call('HDEL', KEYS[1], 'marked')
  unlink(2, 1 + chunks)
  return {'HAVE'}
end
if now > tonumber(ARGV[2]) then
  return {'TOOLATE'}
end
for i = 1, chunks do
  if redis.call('STRLEN', KEYS[1 + i]) ~= math.min(chunk, size - (i - 1) * chunk) then
    return {'MISSING', i - 1}
  end
end

for i = 1, chunks do
  redis.call('PERSIST', KEYS[1 + i])
end
redis.call('HSET', KEYS[1], 'size', ARGV[4], 'chunk', ARGV[5], 'checks', ARGV[6], 'upload', upload, 'file', ARGV[7],
  'stored', guard.text(now), 'touched', guard.text(now), 'media_type', ARGV[8], 'name', ARGV[9])
redis.call('HINCRBY', KEYS[1], 'revision', 1)
redis.call('HDEL', KEYS[1], 'marked')
unlink(2 + chunks, #KEYS)
return {'OK'}
