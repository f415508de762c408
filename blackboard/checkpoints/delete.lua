-- Turn a thread into a tombstone; its parts are removed afterwards, in slices.
-- KEYS: meta, lock, latest, effects_open, inbox
-- ARGV: mode, incarnation, drop
-- Returns: {"OK", removing} | {"NONE"} | {"UNRESOLVED", key...} | {"UNREAD", number} | {"REGRESSED", what}
--
-- mode is "delete" (whoever holds it), "expired" (only if that incarnation has expired) or "broken" (only if it is still the
-- copy that was not completed, which stands in the place of the incarnation). A thread whose meta alone was lost can still be
-- deleted; nobody can resolve its effects any more, so these do not keep it.

local now = now_us()
local m = read_meta(KEYS[1], now)
local lost = not m.status and redis.call('EXISTS', KEYS[3]) == 1
if lost and ARGV[1] ~= 'delete' then return {'REGRESSED', 'meta'} end
if not m.status and not lost then return {'NONE'} end
if m.status == 'deleted' then
  if m.removing then return {'OK', m.removing} end
  return {'NONE'}
end
if ARGV[1] == 'broken' and m.copying ~= ARGV[2] then return {'NONE'} end
if ARGV[1] == 'expired' and not (m.expired and m.incarnation == ARGV[2]) then return {'NONE'} end
local open = redis.call('HKEYS', KEYS[4])
if ARGV[1] == 'delete' and #open > 0 and not m.expired and not lost then
  return {'UNRESOLVED', unpack(open, 1, math.min(#open, 100))}
end

-- A thread that is closed takes no letters: what is there was dropped on somebody's word when it was closed.
local unread = redis.call('XLEN', KEYS[5])
local settled = m.expired or m.status == 'finished' or m.status == 'failed'
if ARGV[1] == 'delete' and ARGV[3] ~= '1' and unread > 0 and not settled then return {'UNREAD', unread} end

-- A grant may be newer than a fence that was lost.
local granted = tonumber(lost and string.match(redis.call('GET', KEYS[2]) or '', '^%d+') or '0')

-- On a full server a script may go on with what it began, and it begins with what frees memory.
redis.call('DEL', KEYS[2])
local removing = m.incarnation or '0'
local fence = whole(math.max(tonumber(m.fence) + 1, granted + 1, tonumber(now)))
redis.call('HSET', KEYS[1], 'status', 'deleted', 'removing', removing, 'fence', fence, 'updated', now)
redis.call('HDEL', KEYS[1], 'incarnation', 'expires', 'holder', 'takeovers', 'failures', 'reason', 'copying', 'awaits', 'wake')
-- Until its parts are gone the tombstone stays, or they would stand in the way of a later thread of this id.
redis.call('PERSIST', KEYS[1])
redis.call('DEL', KEYS[3])
return {'OK', removing}
