import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { importMethods } from '../../../src/datasets/dataset.ts';
import { eventFields } from '../../../src/datasets/event-fields.ts';
import type { Platform } from '../../../src/datasets/field-schema.ts';
import { parseImportRequest, type ImportRequest } from '../../../src/ingest/import-request.ts';
import { listRequestErrors } from '../../../src/ingest/validation-errors.ts';

const device = Object.fromEntries(
  ['instanceId', 'gaid', 'appSetId', 'idfa', 'iosVendorId'].map((name) => [name, 'x'.repeat(36)]),
);
/** Good values of the fields that say who an event is about, or are required. */
const good: Readonly<Record<string, unknown>> = {
  ...device,
  androidId: 'x'.repeat(16),
  lvid: 'x'.repeat(32),
  customUserId: 'u',
  customPlatformUserId: 'u',
  xPlatform: 'desktop_web',
  sezamUserId: 5,
  customEventName: 'e',
  idTransaction: 't',
  currency: 'EUR',
  total: 1,
};

const anyValue = fc.oneof(
  fc.jsonValue({ maxDepth: 1 }),
  fc.integer(),
  fc.double(),
  fc.constantFrom<unknown>('', null, 1e12, '1e3', '01', '5', 1.000_01, 'x'.repeat(36), {}, [], {
    '': 'x',
    'b/~': null,
  }),
);
const anyEvent = fc
  .array(fc.tuple(fc.constantFrom(...eventFields.map(({ name }) => name)), anyValue), { maxLength: 12 })
  .map((entries) => Object.fromEntries(entries) as Readonly<Record<string, unknown>>);
const singleMethods = [...importMethods].filter(([, { batch }]) => !batch).map(([name]) => name);

function requestOf(method: string, platform: Platform, event: object): ImportRequest {
  const head = { headers: {}, headersDistinct: {} };
  return { method, head, body: Buffer.from(JSON.stringify(event)), app: { idApp: 1, platform }, receivedAtMs: 0 };
}

/** Returns the event with every listed fault fixed. */
function mend(request: ImportRequest, refusal: Parameters<typeof listRequestErrors>[1]): object {
  const event = JSON.parse(request.body.toString()) as Record<string, unknown>;
  for (const { pointer, reason } of listRequestErrors(request, refusal).listed) {
    if (reason.startsWith('needs one of')) Object.assign(event, { lvid: good['lvid'], customUserId: 'u' });
    const [, name = ''] = pointer.split('/');
    if (Object.hasOwn(good, name)) event[name] = good[name];
    else Reflect.deleteProperty(event, name);
  }
  return event;
}

describe('everything that is wrong with a request', () => {
  it('An event whose listed faults are all fixed is valid, and the list includes the fault of its refusal', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...singleMethods),
        fc.constantFrom<Platform>('web', 'mini-app', 'game', 'mobile-a'),
        anyEvent,
        (method, platform, event) => {
          const request = requestOf(method, platform, event);
          const refusal = parseImportRequest(request);
          if (!('reason' in refusal) || refusal.validationError === undefined) return;
          expect(listRequestErrors(request, refusal).listed).toContainEqual(refusal.validationError);
          const again = parseImportRequest(requestOf(method, platform, mend(request, refusal)));
          expect('reason' in again ? again.detail : 'good').toBe('good');
        },
      ),
      { numRuns: 300 },
    );
  });
});
