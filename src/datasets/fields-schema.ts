import { readPackageJson } from '../runtime/files/package-files.ts';
import type { FieldSchema } from './field-schema.ts';

/** `schemas/events/fields.json`: what the kinds of imported events share, and rows of other datasets with them. */
export const fieldsSchema = readPackageJson('schemas/events/fields.json') as {
  readonly $id: string;
  readonly $defs: Readonly<Record<string, FieldSchema>>;
};
