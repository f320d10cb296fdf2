import { expect, test } from 'vitest'
import { cidrAllows, requireCidrs } from './cidr.ts'

test.each([
  { list: ['10.0.0.0/8'], address: '10.1.2.3', want: true },
  { list: ['10.0.0.0/8'], address: '11.1.2.3', want: false },
  { list: ['10.0.0.0/8'], address: '::ffff:10.1.2.3', want: true },
  { list: ['192.0.2.7'], address: '192.0.2.7', want: true },
  { list: ['192.0.2.7'], address: '192.0.2.8', want: false },
  { list: ['0.0.0.0/0'], address: '203.0.113.9', want: true },
  { list: ['0.0.0.0/0'], address: '2001:db8::1', want: false },
  { list: ['2001:db8::/32'], address: '2001:db8:1::1', want: true },
  { list: ['fe80::/10'], address: 'fe80::1%eth0', want: true },
  { list: ['2001:db8::/32', '10.0.0.1'], address: '10.0.0.1', want: true },
  { list: ['0.0.0.0/0', '::/0'], address: '', want: false },
  { list: [], address: '10.0.0.1', want: false },
])('$address in $list: $want', ({ list, address, want }) => expect(cidrAllows(list, address)).toBe(want))

test.each(['', 'x', '10.0.0.0/33', '10.0.0/8', '2001:db8::/129', '10.0.0.0/', '10.0.0.0/8/8'])(
  'refuses "%s"',
  (text) => {
    expect(() => requireCidrs(['10.0.0.1', text], 'token_bound_cidrs')).toThrow('token_bound_cidrs')
  },
)
