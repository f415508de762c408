-- List manifests of a lineage, newest first.
-- KEYS: meta, history
-- ARGV: before, limit, checkpoints
-- Returns: {"OK", incarnation, id, manifest, id, manifest, ...} | {"NONE"} | {"REGRESSED", what}
--
-- checkpoints is what stands before the ids in the keys that are followed; without it nothing is, and the manifests are ''.

local m = read_meta(KEYS[1], now_us())
if not m.status and redis.call('ZCARD', KEYS[2]) > 0 then return {'REGRESSED', 'meta'} end
if not m.incarnation or m.expired then return {'NONE'} end
local top = ARGV[1] == '' and '+' or '(' .. ARGV[1]
local ids = redis.call('ZREVRANGEBYLEX', KEYS[2], top, '-', 'LIMIT', 0, tonumber(ARGV[2]))
local rows = {'OK', m.incarnation}
for _, id in ipairs(ids) do
  local manifest = ARGV[3] == '' and '' or redis.call('GET', ARGV[3] .. id)
  if manifest then
    rows[#rows + 1] = id
    rows[#rows + 1] = manifest
  end
end
return rows
