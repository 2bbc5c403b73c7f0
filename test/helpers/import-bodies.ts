import * as fc from 'fast-check';
import { getMethod, importMethods } from '../../src/datasets/dataset.ts';
import { platforms, type ImportMethod, type Platform } from '../../src/datasets/field-schema.ts';

/** A generated request body. */
export interface GeneratedBody {
  readonly platform: Platform;
  readonly method: ImportMethod;
  readonly bytes: Buffer;
  /** Whether it follows the rules, so that it must be accepted. */
  readonly mustPass: boolean;
}

type Fields = Record<string, unknown>;

const text = (minLength: number, maxLength: number): fc.Arbitrary<string> =>
  fc.string({ unit: 'binary', minLength, maxLength });
const exact = (length: number): fc.Arbitrary<string> =>
  fc.oneof(fc.string({ unit: 'grapheme-ascii', minLength: length, maxLength: length }), text(length, length));
/** Generates a number, or a string with one of JSON's notations of it. */
const numeric = (min: number, max: number): fc.Arbitrary<number | string> =>
  fc
    .integer({ min, max })
    .chain((value) =>
      fc.constantFrom<number | string>(value, String(value), `${value}.0`, `${value}e0`, `${value * 10}E-1`),
    );

/** Valid values of every field: an independent copy of docs/api.md#fields-and-defaults. */
const fieldValues: Readonly<Record<string, fc.Arbitrary<unknown>>> = {
  eventTimestamp: numeric(946_674_000, 4_294_967_295),
  customUserId: text(1, 40),
  ipv4: text(0, 15),
  ipv6: text(0, 45),
  idGender: numeric(0, 2),
  age: numeric(0, 128),
  connectionType: numeric(0, 2),
  bluetoothEnabled: numeric(0, 2),
  instanceId: exact(36),
  adTrackingEnabled: numeric(0, 1),
  idfa: exact(36),
  iosVendorId: exact(36),
  gaid: exact(36),
  appSetId: exact(36),
  androidId: exact(16),
  lvid: exact(32),
  adBlocker: numeric(0, 1),
  userAgent: text(0, 60),
  customPlatformUserId: text(1, 40),
  xPlatform: fc.constantFrom(
    'desktop_web',
    'mobile_web',
    'mobile_android',
    'mobile_android_messenger',
    'mobile_ipad',
    'mobile_iphone',
    'mobile_iphone_messenger',
  ),
  sezamUserId: fc.oneof(fc.maxSafeInteger(), fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map(String)),
  hwid: fc.bigInt({ min: 1n, max: 2n ** 64n - 1n }).map(String),
};
const customEventValues = {
  customEventName: text(1, 30),
  customEventParams: fc.dictionary(
    fc.oneof(text(1, 12), fc.constantFrom('__proto__', 'constructor', 'level')),
    text(1, 20),
    { maxKeys: 5 },
  ),
};

/** Generates a decimal of at most four places, in one of JSON's notations. */
const decimal: fc.Arbitrary<number | string> = fc
  .tuple(fc.integer({ min: -99_999_999, max: 99_999_999 }), fc.integer({ min: 0, max: 9999 }))
  .chain(([whole, part]) => {
    const digits = `${whole}.${String(part).padStart(4, '0')}`;
    return fc.constantFrom<number | string>(digits, Number(digits), `${digits}00`, `${digits}e0`, whole);
  });
const revenueValues = {
  idTransaction: text(1, 30),
  currency: fc.string({
    unit: fc.constantFrom('A', 'B', 'D', 'E', 'R', 'S', 'U', 'X', 'Z'),
    minLength: 3,
    maxLength: 3,
  }),
  total: decimal,
};
/** Fields of the kinds besides the common ones, and whether each is required. */
const ownValues: Readonly<Record<string, Readonly<Record<string, fc.Arbitrary<unknown>>>>> = {
  custom_event: customEventValues,
  revenue: revenueValues,
};
const ownRequired: Readonly<Record<string, readonly string[]>> = {
  custom_event: ['customEventName'],
  revenue: ['idTransaction', 'currency', 'total'],
};

function requiredFields(method: ImportMethod, platform: Platform): string[] {
  if (platform === 'mini-app') return ['customPlatformUserId', 'xPlatform'];
  if (ownValues[getMethod(method).kind] !== undefined && platform === 'game') return ['sezamUserId'];
  return ['customUserId'];
}

function validEvent(method: ImportMethod, platform: Platform): fc.Arbitrary<Fields> {
  const { kind } = getMethod(method);
  const values: Readonly<Record<string, fc.Arbitrary<unknown>>> = { ...fieldValues, ...ownValues[kind] };
  const required = [...requiredFields(method, platform), ...(ownRequired[kind] ?? [])];
  // Few fields besides the required ones, so that a batch stays below the limit on size.
  return fc.subarray(Object.keys(values), { maxLength: 5 }).chain((chosen) => {
    const names = new Set([...required, ...chosen]);
    return fc.record(Object.fromEntries(Object.entries(values).filter(([name]) => names.has(name))));
  });
}

const anyJson = fc.oneof(
  fc.constantFrom<unknown>(
    null,
    true,
    false,
    '',
    ' 1',
    '1e2x',
    '0x10',
    '1e999',
    -1,
    0.5,
    2 ** 53,
    -0,
    [],
    {},
    [[]],
    'x'.repeat(300),
    { length: 1 },
  ),
  fc.jsonValue({ maxDepth: 2 }),
);

/** Generates a valid event with one change, which may leave it valid. */
function mutatedEvent(method: ImportMethod, platform: Platform): fc.Arbitrary<unknown> {
  const names = [
    ...Object.keys(fieldValues),
    ...Object.values(ownValues).flatMap((values) => Object.keys(values)),
    'unknown',
    '__proto__',
    'idApp',
    'event_id',
  ];
  const change = fc.record({
    name: fc.constantFrom(...names),
    value: anyJson,
    how: fc.constantFrom('set', 'remove', 'replace', 'nest'),
  });
  return fc.tuple(validEvent(method, platform), change).map(([event, { name, value, how }]) => {
    switch (how) {
      case 'set':
        return Object.fromEntries([...Object.entries(event), [name, value]]);
      case 'remove':
        return Object.fromEntries(Object.entries(event).slice(1));
      case 'nest':
        return [event];
      default:
        return value;
    }
  });
}

const place = (bytes: Buffer, where: number): number => Math.floor(bytes.length * where);

/** Generates texts and bytes that no serialiser makes. */
function hostileBytes(valid: fc.Arbitrary<Buffer>): fc.Arbitrary<Buffer> {
  const pieces = fc.constantFrom(
    '\\ud800',
    '\\udc00',
    '\\u0000',
    '\u0000',
    '"',
    '}',
    ']',
    ',,',
    '1e999',
    '9007199254740993',
    '{"__proto__":1}',
    '\\',
    '\u2028',
    '[[[[',
    'null',
    '\ufeff',
    ' ',
  );
  const at = fc.double({ min: 0, max: 1, noNaN: true });
  return fc.oneof(
    fc
      .tuple(valid, pieces, at)
      .map(([bytes, piece, where]) =>
        Buffer.concat([
          bytes.subarray(0, place(bytes, where)),
          Buffer.from(piece),
          bytes.subarray(place(bytes, where)),
        ]),
      ),
    fc.tuple(valid, at).map(([bytes, where]) => bytes.subarray(0, place(bytes, where))),
    fc.tuple(valid, at, fc.integer({ min: 0, max: 255 })).map(([bytes, where, byte]) => {
      const changed = Buffer.from(bytes);
      if (changed.length > 0) changed[Math.min(place(bytes, where), changed.length - 1)] = byte;
      return changed;
    }),
    fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes)),
    fc
      .tuple(fc.constantFrom('[', '{"a":', '[{"x":'), fc.integer({ min: 1, max: 3000 }))
      .map(([open, depth]) => Buffer.from(open.repeat(depth).slice(0, 10_240))),
    fc
      .integer({ min: 10_000, max: 10_500 })
      .map((length) => Buffer.from(`{"customUserId":"u","x":"${'a'.repeat(length)}"}`)),
  );
}

const methods = [...importMethods.keys()];

/** Bodies of all three kinds: valid, mutated, hostile. */
export const generatedBody: fc.Arbitrary<GeneratedBody> = fc
  .tuple(fc.constantFrom(...platforms), fc.constantFrom(...methods), fc.constantFrom('valid', 'mutated', 'hostile'))
  .chain(([platform, method, sort]) => {
    const { batch } = getMethod(method);
    const of = (event: fc.Arbitrary<unknown>, maxLength: number): fc.Arbitrary<Buffer> =>
      (batch ? fc.array(event, { minLength: 1, maxLength }) : event).map((value) =>
        Buffer.from(JSON.stringify(value) ?? ''),
      );
    const valid = of(validEvent(method, platform), 4);
    if (sort === 'valid') return valid.map((bytes) => ({ platform, method, bytes, mustPass: bytes.length <= 10_240 }));
    const bytes =
      sort === 'hostile'
        ? hostileBytes(valid)
        : of(fc.oneof(mutatedEvent(method, platform), validEvent(method, platform)), 22);
    return bytes.map((made) => ({ platform, method, bytes: made, mustPass: false }));
  });
