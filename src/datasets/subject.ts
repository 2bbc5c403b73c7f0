import { eventFields } from './event-fields.ts';
import type { Subject } from './pipeline-file.ts';

/** The device identifiers; the first that is not empty identifies the device of an event (docs/api.md). */
const deviceFields = ['instanceId', 'lvid', 'gaid', 'androidId', 'appSetId', 'idfa', 'iosVendorId'];

/** The device identifiers with their columns, in their order. */
export const deviceColumns: readonly { readonly name: string; readonly column: string }[] = deviceFields.map((name) => {
  const field = eventFields.find((known) => known.name === name && known.schema['x-device-id'] === true);
  if (field === undefined) throw new Error(`schemas: ${name} is not a device identifier`);
  return { name, column: field.schema['x-column'] };
});

/** Fields that identify a person: the user ids of the platforms, the device identifiers and the desktop's. */
export const personFields: readonly string[] = [
  'customUserId',
  'customPlatformUserId',
  'sezamUserId',
  ...deviceFields,
  'hwid',
];

/**
 * Builds the SQL of the text that identifies the subject of a row of `events` within its app; NULL if there is none. A
 * change needs a new form of first-seen parts.
 */
export function subjectSql(subject: Subject): string {
  if (subject === 'user') return "nullif(events.custom_user_id, '')";
  const cases = deviceColumns.map(
    ({ name, column }) => `WHEN events.${column} <> '' THEN '${name}:' || events.${column}`,
  );
  return `CASE ${cases.join(' ')} END`;
}

/**
 * Builds the SQL of the key by which subjects of one app are compared: 128 bits of SHA-256. No client can create
 * two texts with the same key.
 */
export function subjectKeySql(subject: string): string {
  return `CAST(left(sha256(${subject}), 32) AS UUID)`;
}
