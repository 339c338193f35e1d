// What the browser keeps, where that is enabled: cookies, which the server reads, and the storage of a tab.

export const cookie = (name) => document.cookie.split("; ").find((one) => one.startsWith(`${name}=`))?.slice(name.length + 1) ?? "";

export function setCookie(name, value) {
  const secure = location.protocol === "https:" ? "; secure" : "";
  document.cookie = `${name}=${value}; path=/; max-age=${value ? 31536000 : 0}; samesite=lax${secure}`;
}

function tab(use) {
  try {
    return use(sessionStorage) ?? "";
  } catch {
    return ""; // disabled, or full
  }
}

export const inTab = (key) => tab((storage) => storage.getItem(key));
export const keepInTab = (key, value) => tab((storage) => (value ? storage.setItem(key, value) : storage.removeItem(key)));
