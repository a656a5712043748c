"""What is done to a table in Redis Streams, as scripts: each of them all or nothing.

Owns the form in Redis. Three keys of a table, of one slot of a cluster: a hash of its state, a stream of its
chunks, and for each life of a writer number and checksum of its last request. Chunks are numbered without
gaps from when the table was declared, in microseconds, so that a table that lost its data never uses a number
again; the number is the first part of an entry's id. The group of the stream is the life of the one learner.
Must not know connections, nor what chunks mean.
"""

from typing import Final

_COMMON: Final = """
local state, items = KEYS[1], KEYS[2]
local function whole(number) return string.format('%.0f', number) end
local function of(name) return tonumber(redis.call('HGET', state, name) or '0') end
local function use_up(upto)
  local last = redis.call('XREVRANGE', items, whole(upto) .. '-0', '-', 'COUNT', 1)[1]
  if last then redis.call('HSET', state, 'acked_bytes', last[2][2], 'acked_steps', last[2][4]) end
  redis.call('HSET', state, 'acked', whole(upto))
  redis.call('XTRIM', items, 'MINID', whole(upto + 1) .. '-0')
end
local function delivered(group)
  for _, one in ipairs(redis.call('EXISTS', items) == 1 and redis.call('XINFO', 'GROUPS', items) or {}) do
    if one[2] == group then return tonumber(string.match(one[8], '^%d+')), one[6] end
  end
  return 0, 0
end
"""

DECLARE: Final = (
    _COMMON
    + """
local known = redis.call('HGET', state, 'hash')
if known and known ~= ARGV[1] then return redis.error_reply('ENCODING ' .. known) end
if not known then
  local now = redis.call('TIME')
  local born = whole(now[1] * 1000000 + now[2])
  redis.call('HSET', state, 'hash', ARGV[1], 'encoding', ARGV[2], 'born', born, 'last', born, 'acked', born)
end
return 0
"""
)
"""Given the encoding's hash and the encoding."""

APPEND: Final = (
    _COMMON
    + """
if redis.call('HGET', state, 'hash') ~= ARGV[1] then return redis.error_reply('UNDECLARED') end
local number, body = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+):?(.*)$')
if number == ARGV[2] and body ~= '' and body ~= ARGV[6] then return redis.error_reply('OTHER') end
if tonumber(number or '0') >= tonumber(ARGV[2]) then return 1 end
local last, bytes, steps, added, size = of('last'), of('bytes'), of('steps'), (#ARGV - 6) / 2, 0
for place = 8, #ARGV, 2 do size = size + #ARGV[place] end
local most, most_bytes = tonumber(ARGV[3]), tonumber(ARGV[4])
if added > most or size > most_bytes then return redis.error_reply('LARGE') end
if last - of('acked') + added > most or bytes - of('acked_bytes') + size > most_bytes then
  return redis.error_reply('FULL')
end
local now = redis.call('TIME')
for place = 7, #ARGV, 2 do
  last, steps, bytes = last + 1, steps + tonumber(ARGV[place]), bytes + #ARGV[place + 1]
  redis.call('XADD', items, whole(last) .. '-0', 'bytes', whole(bytes), 'steps', whole(steps),
    'at', whole(now[1] * 1000000 + now[2]), 'chunk', ARGV[place + 1])
end
redis.call('HSET', state, 'last', whole(last), 'bytes', whole(bytes), 'steps', whole(steps))
redis.call('SET', KEYS[3], ARGV[2] .. ':' .. ARGV[6], 'EX', ARGV[5])
return 0
"""
)
"""Given the encoding's hash, the request's number, most items, most bytes, seconds that the number is known,
the checksum of all chunks; then steps and bytes of each chunk. 1 where the request was taken before."""

RESUME: Final = (
    _COMMON
    + """
local born, acked, last = of('born'), of('acked'), of('last')
if born == 0 then return redis.error_reply('UNDECLARED') end
local cursor, served, used = tonumber(ARGV[2]), of('served'), 0
local unknown = cursor > 0 and (cursor < born or cursor > last)
local gap = unknown and 0 or math.max(0, acked - math.max(cursor, born))
if not unknown and cursor > acked then
  use_up(cursor)
  used, acked = cursor - acked, cursor
end
local group = redis.call('HGET', state, 'group')
if group then
  served = math.max(served, (delivered(group)))
  redis.call('XGROUP', 'DESTROY', items, group)
end
redis.call('XGROUP', 'CREATE', items, ARGV[1], whole(acked) .. '-0', 'MKSTREAM')
local again = math.max(0, served - acked)
redis.call('HINCRBY', state, 'redelivered', again)
redis.call('HSET', state, 'group', ARGV[1], 'served', whole(served))
return {whole(acked), again, used, gap, unknown and 1 or 0, whole(served)}
"""
)
"""Given the group of the new life, and the cursor of its checkpoint."""

ACKNOWLEDGE: Final = (
    _COMMON
    + """
if redis.call('HGET', state, 'group') ~= ARGV[1] then return redis.error_reply('NOGROUP') end
local acked, upto = of('acked'), math.min(tonumber(ARGV[2]), of('last'))
if upto <= acked then return 0 end
local pending
repeat
  pending = redis.call('XPENDING', items, ARGV[1], '-', whole(upto) .. '-0', 1000)
  for place, one in ipairs(pending) do pending[place] = one[1] end
  if #pending > 0 then redis.call('XACK', items, ARGV[1], unpack(pending)) end
until #pending == 0
use_up(upto)
return upto - acked
"""
)
"""Given the group of the life, and the number of the last chunk that is used."""

STATS: Final = (
    _COMMON
    + """
local group = redis.call('HGET', state, 'group')
local served, pending = 0, 0
if group then served, pending = delivered(group) end
served = math.max(served, of('served'), of('born'))
return {
  whole(of('born')), whole(of('last')), whole(of('acked')), whole(served), pending, of('redelivered'),
  whole(of('bytes') - of('acked_bytes')), whole(of('steps') - of('acked_steps'))
}
"""
)
"""How the table stands."""
