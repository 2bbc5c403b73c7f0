import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { resolveConfig } from '../../../../src/cli/command.ts';
import {
  assertDataFormat,
  dataFormat,
  dataFormatPath,
  findDataFormat,
  movedFormat,
  raiseDataFormat,
  writeDataFormat,
} from '../../../../src/runtime/files/data-format.ts';
import { testFolder } from '../../../helpers/folder.ts';

describe('a data folder', () => {
  it('A data folder without a format is of an older version, and raised by a start, and one of this format stays as it is', async () => {
    const folder = testFolder();
    expect(findDataFormat(folder)).toBeUndefined();
    assertDataFormat(folder);
    await raiseDataFormat(folder);
    expect(findDataFormat(folder)).toMatchObject({ format: dataFormat, restoring: false });
    await raiseDataFormat(folder);
    assertDataFormat(folder);
  });

  it('A data folder of a newer format is refused by a start and by every command, in one sentence that names both versions', async () => {
    const folder = testFolder();
    writeFileSync(
      dataFormatPath(folder),
      `${JSON.stringify({ format: dataFormat + 1, program: '9.1.0', another: true })}\n`,
    );
    const refusal = expect.objectContaining({
      code: 'data_format',
      message: expect.stringMatching(
        new RegExp(
          `^the data folder ${folder} has format ${dataFormat + 1}, written by tributary 9.1.0, and this is tributary .* which knows formats up to ${dataFormat}$`,
        ),
      ) as string,
    }) as Error;
    expect(() => resolveConfig({}, { TRIBUTARY_DATA_DIR: folder })).toThrow(refusal);
    await expect(raiseDataFormat(folder)).rejects.toThrow(refusal);
    expect(findDataFormat(folder)).toMatchObject({ format: dataFormat + 1, program: '9.1.0' });
  });

  it('A data folder into which a restore has not ended is refused', async () => {
    const folder = testFolder();
    await writeDataFormat(folder, { format: dataFormat, restoring: true });
    expect(() => resolveConfig({}, { TRIBUTARY_DATA_DIR: folder })).toThrow(
      expect.objectContaining({
        code: 'data_format',
        message: `a restore into ${folder} is unfinished`,
      }) as Error,
    );
  });

  it('A data folder to which a move has not ended is refused, and names the source', async () => {
    const folder = testFolder();
    await writeDataFormat(folder, { format: dataFormat, restoring: true, movedFrom: 's3://lake/one', move: '1' });
    expect(() => resolveConfig({}, { TRIBUTARY_DATA_DIR: folder })).toThrow(
      expect.objectContaining({
        code: 'data_format',
        message: `the move of s3://lake/one to ${folder} is unfinished`,
      }) as Error,
    );
  });

  it('A data folder whose data was moved away is refused, with the new place, and is scratch for a bucket', async () => {
    const folder = testFolder();
    const options = { TRIBUTARY_DATA_DIR: folder };
    const moveTo = async (movedTo: string): Promise<unknown> => {
      await writeDataFormat(folder, { format: movedFormat, movedTo });
      return expect.objectContaining({ code: 'data_format', message: `the data of ${folder} was moved to ${movedTo}` });
    };
    const toFolder = await moveTo('/new');
    expect(() => resolveConfig({}, options)).toThrow(toFolder);
    const toBucket = await moveTo('s3://lake/one');
    expect(() => resolveConfig({}, options)).toThrow(toBucket);
    expect(() => resolveConfig({}, options)).toThrow(
      expect.objectContaining({
        hint: expect.stringContaining('TRIBUTARY_STORAGE_URL=s3://lake/one') as string,
      }) as Error,
    );
    await expect(raiseDataFormat(folder)).rejects.toThrow(toBucket);
    // A part of it may still be in the folder.
    expect(() => resolveConfig({ TRIBUTARY_LAKE_URL: 's3://lake/one/lake' }, options)).toThrow(toBucket);
    expect(resolveConfig({ TRIBUTARY_STORAGE_URL: 's3://lake/one' }, options).isScratch).toBe(true);
  });

  it.each(['', '{', '[]', 'null', '{"format":"1"}', '{"format":-1}', '{"format":1.5}'])(
    'A data folder whose format is damaged (%j) is refused, with the way out',
    (text) => {
      const folder = testFolder();
      writeFileSync(dataFormatPath(folder), text);
      expect(() => assertDataFormat(folder)).toThrow(
        expect.objectContaining({
          code: 'record_damaged',
          hint: expect.stringContaining('write {"format":1}') as string,
        }) as Error,
      );
    },
  );

  it('A data folder whose format is a folder or a named pipe is refused at once', () => {
    const folder = testFolder();
    mkdirSync(dataFormatPath(folder));
    expect(() => assertDataFormat(folder)).toThrow(
      expect.objectContaining({ code: 'disk', message: `cannot read ${dataFormatPath(folder)}` }) as Error,
    );
    const other = testFolder();
    execFileSync('mkfifo', [dataFormatPath(other)]);
    expect(() => assertDataFormat(other)).toThrow(expect.objectContaining({ code: 'record_damaged' }) as Error);
  });

  it('A missing data folder is not created by a check of its format', () => {
    const folder = path.join(testFolder(), 'none');
    resolveConfig({}, { TRIBUTARY_DATA_DIR: folder }, 'any');
    expect(existsSync(folder)).toBe(false);
    mkdirSync(folder);
    writeFileSync(path.join(folder, 'file'), '');
    resolveConfig({}, { TRIBUTARY_DATA_DIR: path.join(folder, 'file') }, 'any');
  });
});
