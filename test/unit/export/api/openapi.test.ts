import { describe, expect, it } from 'vitest';
import { describeExportApi } from '../../../../src/export/api/openapi.ts';
import { parameters } from '../../../../src/export/api/parameters.ts';

describe('the reference of the export area', () => {
  const part = describeExportApi();

  it('The reference of the export area has every parameter of create with its rule', () => {
    const { get } = part.paths['/api/raw/v1/export/create.json'] as {
      get: { parameters: readonly { name: string; description: string }[] };
    };
    expect(get.parameters.map(({ name }) => name)).toEqual([...parameters.map(({ name }) => name), 'paramsFilter']);
    expect(get.parameters.find(({ name }) => name === 'isVerified')?.description).toContain('1 (verified)');
  });

  it('The reference of the export area refers only to schemas that it contains', () => {
    const references = [...JSON.stringify(part).matchAll(/"#\/components\/schemas\/(\w+)"/g)].map(([, name]) => name);
    expect(references.length).toBeGreaterThan(10);
    for (const name of references) expect(Object.keys(part.components.schemas)).toContain(name);
  });
});
