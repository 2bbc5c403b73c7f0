import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { listPackageJson, readPackageJson } from '../../../src/runtime/files/package-files.ts';

describe('the schemas', () => {
  it.each(['schemas/events', 'schemas/rows'].flatMap((folder) => listPackageJson(folder)))(
    'The file %s is a schema by the schema of schemas',
    (file) => {
      const ajv = new Ajv2020({ strict: false });
      expect(ajv.validateSchema(readPackageJson(file) as object), ajv.errorsText()).toBe(true);
    },
  );
});
