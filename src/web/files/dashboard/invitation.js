// The token of an invitation, from the link of the owner until it is answered.

const KEY = "invitation";

/**
 * Keeps the token of an invitation over a sign-in, in this tab only, and takes it out of the address: it is a secret.
 */
export function keepInvitation() {
  const token = location.pathname.endsWith("/invite") ? new URLSearchParams(location.hash.slice(1)).get("token") : null;
  if (!token) return;
  sessionStorage.setItem(KEY, token);
  history.replaceState(null, "", `${document.documentElement.dataset.base ?? ""}/`);
}

/** The token of the invitation that waits for an answer; null: there is none. */
export const invitation = () => sessionStorage.getItem(KEY);

/** Call it when the invitation was answered or is not known. */
export const forgetInvitation = () => sessionStorage.removeItem(KEY);
