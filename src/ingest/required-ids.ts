import { getKind } from '../datasets/dataset.ts';
import { eventFields } from '../datasets/event-fields.ts';
import type { EventKind, Platform } from '../datasets/event-kinds.ts';
import type { GivenFields, Violation } from '../datasets/schema-registry.ts';

/** The seven device identifiers of service.md 2.2. */
const deviceIds = eventFields.filter((field) => field.schema['x-device-id'] === true).map((field) => field.name);

/** A device's, or the user's. */
const anyIds = ['customUserId', ...deviceIds];
const gameIds = ['sezamUserId', 'lvid'];

/** An empty text identifies nobody. */
function has(fields: GivenFields, name: string): boolean {
  const value = fields[name];
  return value !== undefined && value !== '';
}

function requireAll(fields: GivenFields, names: readonly string[]): Violation | undefined {
  const missing = names.find((name) => !has(fields, name));
  return missing === undefined ? undefined : { pointer: `/${missing}`, reason: 'is required' };
}

function requireOne(fields: GivenFields, names: readonly string[]): Violation | undefined {
  return names.some((name) => has(fields, name))
    ? undefined
    : { pointer: '', reason: `needs one of ${names.join(', ')}` };
}

/** Says whether events of a kind may be about a device alone; the others are about a user. */
export function mayBeOfDevice(kind: EventKind): boolean {
  return getKind(kind).ofDevice;
}

/**
 * Checks that an event says who it is about, by service.md 2.2 and the app's platform. The fields are valid already.
 */
export function findMissingIdentity(kind: EventKind, platform: Platform, fields: GivenFields): Violation | undefined {
  if (platform === 'mini-app') return requireAll(fields, ['customPlatformUserId', 'xPlatform']);
  if (!mayBeOfDevice(kind)) return requireAll(fields, ['customUserId']);
  if (platform === 'game') return requireOne(fields, gameIds);
  return requireOne(fields, anyIds);
}
