import { gunzipSync, gzipSync } from 'node:zlib';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';
import { startConsoleServer } from '../../helpers/console-server.ts';

const built = path.join(packageRoot, 'dist/console');
const assets = existsSync(built) ? readdirSync(path.join(built, 'assets')) : [];
const asset = assets.find((name) => name.endsWith('.js')) ?? '';

describe('the files of the console', () => {
  it('The root path redirects to the console', async () => {
    const server = await startConsoleServer();
    for (const target of ['/', '/console']) {
      const answer = await server.ask(target);
      expect([answer.status, answer.headers['location']]).toEqual([302, '/console/']);
    }
  });

  it.each(['/console/', '/console/?a=b', '/console/exports', '/console/exports/12'])(
    'The page %s is the index, which is not cached, and runs only scripts of the service',
    async (target) => {
      const server = await startConsoleServer();
      const { status, headers, body } = await server.ask(target);
      expect(status).toBe(200);
      expect(headers['cache-control']).toBe('no-store');
      expect(headers['content-security-policy']).toBe(
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      );
      expect(headers).toMatchObject({ 'x-content-type-options': 'nosniff', 'referrer-policy': 'no-referrer' });
      expect(body.toString()).not.toMatch(/<style|style=|<script>|\son[a-z]+=|https?:/);
      expect(body.toString()).toContain(`/console/assets/${asset}`);
    },
  );

  it('A file with a content hash in its name is cached for a year, and compressed if the client accepts it', async () => {
    const server = await startConsoleServer();
    const plain = await server.ask(`/console/assets/${asset}`);
    const packed = await server.ask(`/console/assets/${asset}`, { headers: { 'accept-encoding': 'br, gzip' } });
    const refused = await server.ask(`/console/assets/${asset}`, { headers: { 'accept-encoding': 'gzip;q=0' } });
    expect(plain.headers).toMatchObject({
      'cache-control': 'public, max-age=31536000, immutable',
      'content-type': 'text/javascript; charset=utf-8',
      vary: 'accept-encoding',
    });
    expect(plain.body.equals(readFileSync(path.join(built, 'assets', asset)))).toBe(true);
    expect(packed.headers['content-encoding']).toBe('gzip');
    expect(gunzipSync(packed.body).equals(plain.body)).toBe(true);
    expect(refused.headers['content-encoding']).toBeUndefined();
    const etag = String(plain.headers['etag']);
    const known = await server.ask(`/console/assets/${asset}`, { headers: { 'if-none-match': etag } });
    expect([known.status, known.body.length]).toEqual([304, 0]);
  });

  it('No path leads outside of the files, in any encoding', async () => {
    const server = await startConsoleServer();
    const targets = [
      '/console/assets/../index.html',
      '/console/assets/../../main.js',
      '/console/../main.js',
      '/console/assets/..%2f..%2fmain.js',
      '/console/assets/%2e%2e/%2e%2e/main.js',
      '/console/assets/..%5c..%5cmain.js',
      '/console/..%2f..%2fpackage.json',
      '/console//etc/passwd',
      '/console/assets/',
      '/console/assets',
      '/console/assets/none.js',
      '/console/index.html',
      '/console/assets/__proto__',
      '/console/%00',
    ];
    const answers = await Promise.all(targets.map((target) => server.ask(target)));
    expect(answers.map(({ status }) => status)).toEqual(targets.map(() => 404));
    for (const { body } of answers) expect(body.length).toBeLessThan(200);
  });

  it('A console that was not built is reported', async () => {
    const server = await startConsoleServer({ pages: 'dist/nowhere' });
    const answer = await server.ask('/console/');
    expect([answer.status, answer.body.toString()]).toEqual([404, 'The console was not built: run make build\n']);
  });

  it('The console is smaller than 100 kB, compressed', () => {
    const bytes = assets.map((name) => gzipSync(readFileSync(path.join(built, 'assets', name))).length);
    expect(bytes.reduce((sum, size) => sum + size, 0)).toBeLessThan(100_000);
    expect(bytes.length).toBeGreaterThanOrEqual(3);
  });

  it('The dictionary of exports needs no sign-in, and is cached only until it changes', async () => {
    const server = await startConsoleServer();
    const answer = await server.ask('/console/dictionary.json');
    expect(answer.headers['cache-control']).toBe('no-cache');
    const known = await server.ask('/console/dictionary.json', {
      headers: { 'if-none-match': String(answer.headers['etag']) },
    });
    expect(known.status).toBe(304);
  });
});
