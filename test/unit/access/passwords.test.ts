import { expect, test } from 'vitest';
import { hashPassword, isPassword } from '../../../src/access/passwords.ts';

test('A crowd of guesses for users without a password is refused, and users do not wait for it', async () => {
  const password = 'correct horse 7';
  const stored = await hashPassword(password);
  let answered = 0;
  const guesses = Array.from({ length: 30 }, async () => {
    try {
      return await isPassword('guessed', undefined);
    } catch (error) {
      return (error as { readonly code?: string }).code;
    } finally {
      answered += 1;
    }
  });
  expect(await isPassword(password, stored)).toBe(true);
  expect(answered).toBeLessThan(guesses.length);
  const results = await Promise.all(guesses);
  expect(results.filter((result) => result === false)).toHaveLength(6);
  expect(results.filter((result) => result === 'overloaded')).toHaveLength(24);
});
