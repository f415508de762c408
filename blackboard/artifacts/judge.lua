-- Notes what a collection has found out: owners that refer no more, and whether anybody does; gives way if the artifact was
-- put or referred to since.
-- KEYS: head, refs
-- ARGV: revision, mark, owner...
-- Returns: {"OK"} | {"MOVED"}
--
-- Each owner is followed by the time since which it referred, and goes only if that is still so. mark is 1 to mark an artifact that nobody refers to with the time, unless it is marked, and 0 to take a mark away.
-- luacheck: read globals guard
if redis.call('HGET', KEYS[1], 'revision') ~= ARGV[1] then
  return {'MOVED'}
end
for i = 3, #ARGV, 2 do
  if redis.call('HGET', KEYS[2], ARGV[i]) == ARGV[i + 1] then
    redis.call('HDEL', KEYS[2], ARGV[i])
  end
end
if ARGV[2] == '1' then
  redis.call('HSETNX', KEYS[1], 'marked', guard.text(guard.now()))
else
  redis.call('HDEL', KEYS[1], 'marked')
end
return {'OK'}
