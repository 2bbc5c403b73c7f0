import { closeSync, openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { createLogger } from '../../../src/runtime/logger.ts';
import { testFolder } from '../../helpers/folder.ts';

describe('the log', () => {
  it('The log never ends its process when the disk it is written to is full', () => {
    const full = openSync('/dev/full', 'w');
    const logger = createLogger('info', {}, full);
    expect(() => {
      for (let line = 0; line < 3; line += 1) logger.info({ line }, 'cannot be written');
    }).not.toThrow();
    closeSync(full);
  });

  it('The log redacts secrets', () => {
    const file = path.join(testFolder(), 'log');
    const fd = openSync(file, 'w');
    createLogger('info', {}, fd).info(
      { token: 'canary', user: { secret: 'canary' }, request: { headers: { authorization: 'canary' } } },
      'line',
    );
    closeSync(fd);
    const text = readFileSync(file, 'utf8');
    expect(text).toContain('[redacted]');
    expect(text).not.toContain('canary');
  });
});
