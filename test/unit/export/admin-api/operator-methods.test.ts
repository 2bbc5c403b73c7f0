import { expect, test } from 'vitest';
import type { User } from '../../../../src/access/access.ts';
import type { Method } from '../../../../src/export/api/methods-routes.ts';
import { createOperatorMethods } from '../../../../src/export/admin-api/operator-methods.ts';
import type { Logger } from '../../../../src/runtime/logger.ts';

const operator = { idUser: '3', isOperator: true } as User;

test('The log has only the prefix of a revoked token, even if an operator passes the whole token', async () => {
  const lines: unknown[] = [];
  let method: Method | undefined;
  const logger = { info: (fields: unknown) => void lines.push(fields) } as Logger;
  const { post } = createOperatorMethods((_verbs, _url, _name, added) => void (method = added), logger);
  post('/revoke.json', 'revoke', ['idApp', 'prefix'], () => Promise.resolve({ idApp: '1', revoked: 'abcdefgh' }));
  const given = new Map([
    ['idApp', ['1']],
    ['prefix', ['abcdefgh-the-rest-of-the-token']],
  ]);
  await method?.(operator, given, {} as never);
  expect(lines).toEqual([{ operator: '3', change: 'revoke', idApp: '1', idUser: undefined, revoked: 'abcdefgh' }]);
});
