import { getKind } from '../datasets/dataset.ts';
import { eventFields } from '../datasets/event-fields.ts';
import type { EventKind, Platform } from '../datasets/field-schema.ts';
import type { InputFields, SchemaError } from '../datasets/schema-registry.ts';

/** The device identifiers (docs/api.md#event-identity). */
const deviceIds = eventFields.filter((field) => field.schema['x-device-id'] === true).map((field) => field.name);

/** Reports whether a field has a value; an empty text identifies no user. */
function has(fields: InputFields, name: string): boolean {
  const value = fields[name];
  return value !== undefined && value !== '';
}

/** The fields that identify the user or device of an event: all of them, or any. */
interface Identity {
  readonly names: readonly string[];
  readonly isAny: boolean;
}

const ofMiniApp: Identity = { names: ['customPlatformUserId', 'xPlatform'], isAny: false };
const ofUser: Identity = { names: ['customUserId'], isAny: false };
const ofGame: Identity = { names: ['sezamUserId', 'lvid'], isAny: true };
const ofAnybody: Identity = { names: ['customUserId', ...deviceIds], isAny: true };

function identityOf(kind: EventKind, platform: Platform): Identity {
  if (platform === 'mini-app') return ofMiniApp;
  if (!getKind(kind).allowsDeviceOnly) return ofUser;
  return platform === 'game' ? ofGame : ofAnybody;
}

const lackOf = (name: string): SchemaError => ({ pointer: `/${name}`, reason: 'is required' });

/** Returns the first missing identity of an event on the app's platform (docs/api.md#event-identity). */
export function findMissingIdentity(kind: EventKind, platform: Platform, fields: InputFields): SchemaError | undefined {
  const { names, isAny } = identityOf(kind, platform);
  if (isAny)
    return names.some((name) => has(fields, name))
      ? undefined
      : { pointer: '', reason: `needs one of ${names.join(', ')}` };
  const missing = names.find((name) => !has(fields, name));
  return missing === undefined ? undefined : lackOf(missing);
}

/** Lists every lack of `findMissingIdentity`; the fields need not be valid. */
export function listMissingIdentity(kind: EventKind, platform: Platform, fields: InputFields): SchemaError[] {
  const { names, isAny } = identityOf(kind, platform);
  if (!isAny) return names.filter((name) => !has(fields, name)).map(lackOf);
  const missing = findMissingIdentity(kind, platform, fields);
  return missing === undefined ? [] : [missing];
}

/** Limits the imported data of a request after decompression, bytes (docs/api.md#limits). */
export const maxBodyBytes = 10_240;
/** Limits the events of a batch (docs/api.md#limits). */
export const maxBatchEvents = 20;
export const maxKeyLength = 255;
