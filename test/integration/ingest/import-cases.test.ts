import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../../helpers/folder.ts';
import { sendRaw } from '../../helpers/http.ts';
import { bodyOf, expectedLines, headersOf, readImportCases, type ImportCase } from '../../helpers/import-cases.ts';
import { startTestIngest, testApps, type TestIngest } from '../../helpers/ingest.ts';

const folder = temporaryFolder();
let service: TestIngest;
beforeAll(async () => {
  service = await startTestIngest(folder);
});
afterAll(() => service.stop());

/** The answer that a case has to have, as `send` gives it. */
function expectedAnswer({ status, error, detail = '' }: ImportCase): object {
  const anyDetail: unknown = expect.stringContaining(detail);
  return {
    status,
    type: 'application/json; charset=utf-8',
    fields: 1,
    error,
    detail: error === undefined ? undefined : anyDetail,
  };
}

async function send(imported: ImportCase): Promise<object> {
  const { status, headers, body } = await sendRaw(service.ingest.port, {
    verb: imported.verb ?? 'POST',
    path: imported.path ?? `/v1/${imported.method}/?idApp=${testApps[imported.app ?? 'web']}`,
    headers: headersOf(imported, service.tokens),
    body: bodyOf(imported),
    chunked: imported.chunked === true,
  });
  const answer = JSON.parse(body) as { error?: string };
  return {
    status,
    type: headers['content-type'],
    fields: Object.keys(answer).length,
    error: answer.error,
    detail: headers['x-error-detail'],
  };
}

describe.each(readImportCases())('import, %s', (_file, cases) => {
  it.each(cases.map((imported) => [imported.rule, imported] as const))(
    'The request is answered as its case states: %s',
    async (_, imported) => {
      expect(await send(imported)).toEqual(expectedAnswer(imported));
      const stored = await service.newLines();
      expect(stored).toMatchObject(expectedLines(imported));
      expect((imported.absent ?? []).filter((column) => stored.some((line) => Object.hasOwn(line, column)))).toEqual(
        [],
      );
    },
  );
});
