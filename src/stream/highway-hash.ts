/**
 * HighwayHash-64 of Google's paper (arXiv 1612.06257), as nats-server takes it for the checksum of a stream's
 * description. For inputs of a few kilobytes: each 32 bytes cost some twenty operations on big integers.
 */

type Lanes = [bigint, bigint, bigint, bigint];

interface State {
  readonly v0: Lanes;
  readonly v1: Lanes;
  readonly mul0: Lanes;
  readonly mul1: Lanes;
}

const laneIndexes = [0, 1, 2, 3] as const;
const packetBytes = 32;
const low = 0xff_ff_ff_ffn;
const initial = {
  mul0: [0xdbe6d5d5fe4cce2fn, 0xa4093822299f31d0n, 0x13198a2e03707344n, 0x243f6a8885a308d3n],
  mul1: [0x3bd39e10cb0ef593n, 0xc0acf169b5f18a8cn, 0xbe5466cf34e90c6cn, 0x452821e638d01377n],
} as const;

const wrap = (value: bigint): bigint => BigInt.asUintN(64, value);
const swapHalves = (value: bigint): bigint => wrap((value >> 32n) | (value << 32n));

function readLanes(bytes: Uint8Array): Lanes {
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const read = (lane: number): bigint => view.getBigUint64(lane * 8, true);
  return [read(0), read(1), read(2), read(3)];
}

function createState(key: Uint8Array): State {
  const lanes = readLanes(key);
  const xor = (a: readonly bigint[], of: (lane: bigint) => bigint): Lanes => {
    const [first, second, third, fourth] = laneIndexes.map((n) => (a[n] ?? 0n) ^ of(lanes[n]));
    return [first ?? 0n, second ?? 0n, third ?? 0n, fourth ?? 0n];
  };
  return {
    v0: xor(initial.mul0, (lane) => lane),
    v1: xor(initial.mul1, swapHalves),
    mul0: [...initial.mul0],
    mul1: [...initial.mul1],
  };
}

const byteOf = (lane: bigint, n: number): bigint => (lane >> BigInt(8 * n)) & 0xffn;
const join = (bytes: readonly bigint[]): bigint =>
  bytes.reduce((value, byte, place) => value | (byte << BigInt(8 * place)), 0n);

/** The bytes of two lanes in another order, as two sums: the paper's zipper merge. */
function zipper(odd: bigint, even: bigint): readonly [even: bigint, odd: bigint] {
  const [e, o] = [(n: number) => byteOf(even, n), (n: number) => byteOf(odd, n)];
  return [
    join([e(3), o(4), e(2), e(5), o(6), e(1), o(7), e(0)]),
    join([o(3), e(4), o(2), o(5), o(1), e(6), o(0), e(7)]),
  ];
}

function addZipped(to: Lanes, from: Lanes): void {
  for (const pair of [0, 2] as const) {
    const [even, odd] = zipper(from[pair === 0 ? 1 : 3], from[pair]);
    to[pair] = wrap(to[pair] + even);
    const second = pair === 0 ? 1 : 3;
    to[second] = wrap(to[second] + odd);
  }
}

function update({ v0, v1, mul0, mul1 }: State, lanes: Lanes): void {
  for (const n of laneIndexes) {
    v1[n] = wrap(v1[n] + mul0[n] + lanes[n]);
    mul0[n] ^= (v1[n] & low) * (v0[n] >> 32n);
    v0[n] = wrap(v0[n] + mul1[n]);
    mul1[n] ^= (v0[n] & low) * (v1[n] >> 32n);
  }
  addZipped(v0, v1);
  addZipped(v1, v0);
}

/** The last bytes of an input whose length is no multiple of a packet's. */
function updateRemainder(state: State, rest: Uint8Array): void {
  const size = rest.length;
  const turn = BigInt(size);
  const rotate = (half: bigint): bigint => ((half << turn) | (half >> (32n - turn))) & low;
  for (const n of laneIndexes) {
    state.v0[n] = wrap(state.v0[n] + (turn << 32n) + turn);
    state.v1[n] = (rotate(state.v1[n] >> 32n) << 32n) | rotate(state.v1[n] & low);
  }
  const packet = new Uint8Array(packetBytes);
  const whole = size & ~3;
  packet.set(rest.subarray(0, whole));
  const odd = size & 3;
  if ((size & 16) !== 0) packet.set(rest.subarray(size - 4), packetBytes - 4);
  else if (odd !== 0)
    packet.set([rest[whole] ?? 0, rest[whole + (odd >> 1)] ?? 0, rest[whole + odd - 1] ?? 0], packetBytes / 2);
  update(state, readLanes(packet));
}

/** HighwayHash-64 of `data` under a key of 32 bytes, as the 16 hexadecimal digits of its little-endian bytes. */
export function highwayHash64(key: Uint8Array, data: Uint8Array): string {
  const state = createState(key);
  const whole = data.length - (data.length % packetBytes);
  for (let at = 0; at < whole; at += packetBytes) update(state, readLanes(data.subarray(at, at + packetBytes)));
  if (whole < data.length) updateRemainder(state, data.subarray(whole));
  const { v0, v1, mul0, mul1 } = state;
  for (let round = 0; round < 4; round += 1)
    update(state, [swapHalves(v0[2]), swapHalves(v0[3]), swapHalves(v0[0]), swapHalves(v0[1])]);
  const digest = Buffer.alloc(8);
  digest.writeBigUInt64LE(wrap(v0[0] + v1[0] + mul0[0] + mul1[0]));
  return digest.toString('hex');
}
