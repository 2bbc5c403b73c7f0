import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Platform } from '../../../src/datasets/event-kinds.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { sendRaw } from '../../helpers/http.ts';
import { startTestIngest, testApps, type TestIngest } from '../../helpers/ingest.ts';

/** A line of a case file; test/fixtures/import/README.md says what the fields mean. */
interface ImportCase {
  readonly rule: string;
  readonly app?: Platform;
  readonly method?: string;
  readonly path?: string;
  readonly verb?: string;
  readonly body?: unknown;
  readonly text?: string;
  readonly base64?: string;
  readonly chunked?: boolean;
  readonly headers?: Readonly<Record<string, string | string[] | null>>;
  readonly status: number;
  readonly error?: string;
  readonly detail?: string;
  readonly stored?: readonly Record<string, unknown>[];
  readonly absent?: readonly string[];
}

const cases = path.join(import.meta.dirname, '..', '..', 'fixtures', 'import');
const folder = temporaryFolder();
let service: TestIngest;
beforeAll(async () => {
  service = await startTestIngest(folder);
});
afterAll(() => service.stop());

/** Replaces `$repeat` and `$token` in every text and name of a value. */
function expand(value: unknown): unknown {
  if (typeof value === 'string') {
    return value
      .replaceAll(/\$repeat\((.+?),(\d+)\)/gu, (_, text: string, count: string) => text.repeat(Number(count)))
      .replaceAll(/\$token\((.+?)\)/g, (_, platform: Platform) => service.tokens[platform]);
  }
  if (Array.isArray(value)) return value.map(expand);
  if (typeof value !== 'object' || value === null) return value;
  // Object.fromEntries defines properties, so a name such as __proto__ stays one.
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [expand(name), expand(inner)]));
}

function bodyOf({ body, text, base64 }: ImportCase): Buffer {
  if (base64 !== undefined) return Buffer.from(base64, 'base64');
  if (text !== undefined) return Buffer.from(String(expand(text)));
  return body === undefined ? Buffer.alloc(0) : Buffer.from(JSON.stringify(expand(body)));
}

function headersOf({ app = 'web', headers = {} }: ImportCase): Record<string, string | string[]> {
  const all = { authorization: service.tokens[app], ...headers };
  return Object.fromEntries(
    Object.entries(all).flatMap(([name, value]) =>
      value === null ? [] : [[name, expand(value) as string | string[]]],
    ),
  );
}

const matchers: Readonly<Record<string, () => unknown>> = {
  $now: () => expect.closeTo(Date.now() / 1000, -1) as unknown,
  $keyed: () => expect.stringMatching(/^.{14}8/) as unknown,
  $plain: () => expect.stringMatching(/^.{14}7/) as unknown,
};

function expected(line: Record<string, unknown>): Record<string, unknown> {
  const entries = Object.entries(line).map(([name, value]) => [
    name,
    typeof value === 'string' && matchers[value] !== undefined ? matchers[value]() : expand(value),
  ]);
  return Object.fromEntries(entries) as Record<string, unknown>;
}

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
    headers: headersOf(imported),
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

describe.each(readdirSync(cases).filter((file) => file.endsWith('.ndjson')))('import, %s', (file) => {
  const lines = readFileSync(path.join(cases, file), 'utf8').trimEnd().split('\n');
  it.each(lines.map((line) => JSON.parse(line) as ImportCase).map((imported) => [imported.rule, imported] as const))(
    '%s',
    async (_, imported) => {
      expect(await send(imported)).toEqual(expectedAnswer(imported));
      const stored = await service.newLines();
      expect(stored).toMatchObject((imported.stored ?? []).map(expected));
      expect((imported.absent ?? []).filter((column) => stored.some((line) => Object.hasOwn(line, column)))).toEqual(
        [],
      );
    },
  );
});
